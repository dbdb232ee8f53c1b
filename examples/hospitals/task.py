"""What a hospital does by itself: read the records of its patients."""

import os
from pathlib import Path

import numpy as np

import fedparity as fp
from fedparity.data import heart
from fedparity.records.rundir import read_yaml
from fedparity.run.file import federation_of

EXPERIMENT = Path(__file__).with_name("experiment.yaml")


def load(client: str) -> fp.Federation:
    """Return the patients of one hospital, split into train, validation and test.

    A hospital says in HOSPITAL_FILE where its records are, and reads nothing else. Without it each
    client's share is cut out of the four hospitals in FEDPARITY_DATA: a trial on one machine.
    """
    file = os.environ.get("HOSPITAL_FILE")
    if file:
        return read_own(client, Path(file))
    return federation_of(read_yaml(EXPERIMENT)).only(client)


def read_own(client: str, file: Path) -> fp.Federation:
    """Return a hospital's own records, filled in and scaled by its own medians and deviations."""
    table = heart.read_hospital(file)
    alone = np.zeros(len(table), dtype=np.int64)
    return fp.Federation.from_arrays(
        heart.inputs(table, alone, "client", "client", "common"),
        (table[:, -1] > 0).astype(np.int64),
        client=[client] * len(table),
        fractions=(0.6, 0.2, 0.2),
        outputs=2,
    )
