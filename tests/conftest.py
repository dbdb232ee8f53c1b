"""What all tests share: a cache of their own, small federations, and the folder of real data."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import settings
from rich.console import Console

import fedparity as fp
from fedparity.learning import seeds
from fedparity.studies.cluster import LOOPBACK
from fedparity.testing import unlike_clients

settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady")
torch.set_num_threads(1)  # tensors of a few numbers: a second thread only waits
os.environ[LOOPBACK] = "0"  # read when Ray is imported, whichever test does so first


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep L* in a folder of this session: no test sees what was computed elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPARITY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_power_failure() -> Iterator[None]:
    """Do not wait for the disk after every file: here nobody pulls the plug."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _noise_of_privacy_that_is_the_same_in_every_session(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draw what is unknown to all from the test's own name: a test passes always or never."""
    draws = random.Random(request.node.nodeid)
    monkeypatch.setattr(seeds, "secrets", SimpleNamespace(token_bytes=draws.randbytes))


@pytest.fixture
def real_data() -> Path:
    """Return the folder of the real datasets, or skip."""
    folder = os.environ.get("FEDPARITY_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("the real datasets are absent: set FEDPARITY_DATA to their folder")
    return Path(folder)


@pytest.fixture(scope="session")
def unlike() -> fp.Federation:
    """Four clients of 9, 4, 1 and 6 training examples, in float64."""
    return unlike_clients()


@pytest.fixture(scope="session")
def alike() -> fp.Federation:
    """Four clients of 8 training examples each, in float64."""
    return unlike_clients((8, 8, 8, 8))


@pytest.fixture
def console() -> Console:
    """A console whose text can be read back."""
    return Console(file=io.StringIO(), width=120, color_system=None)


@pytest.fixture
def printed(console: Console):
    """Return what was printed so far."""

    def text() -> str:
        file = console.file
        assert isinstance(file, io.StringIO)
        return file.getvalue()

    return text
