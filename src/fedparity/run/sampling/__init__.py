"""Who is asked in a round: samplings by name, and the grammar that reads them.

>>> read("power_of_choice(candidates=20)")
PowerOfChoice(candidates=20, signal='fresh')
"""

from __future__ import annotations

from fedparity.errors import InputError
from fedparity.run.sampling.available import Available as Available
from fedparity.run.sampling.plain import Size as Size
from fedparity.run.sampling.plain import Uniform as Uniform
from fedparity.run.sampling.power_of_choice import PowerOfChoice as PowerOfChoice
from fedparity.run.sampling.sampling import Losses as Losses
from fedparity.run.sampling.sampling import Population as Population
from fedparity.run.sampling.sampling import Sampling as Sampling
from fedparity.run.sampling.sampling import State as State
from fedparity.spec import construct, parse_one

SAMPLINGS: dict[str, type[Sampling]] = {
    kind.name: kind for kind in (Uniform, Size, PowerOfChoice, Available)
}


def read(sampling: object) -> Sampling:
    """Return the sampling that a text names; a sampling is returned as it is."""
    if isinstance(sampling, Sampling):
        return sampling
    if not isinstance(sampling, str):
        raise InputError(f"sampling is a text such as 'uniform', got {str(sampling)[:80]!r}")
    return construct("sampling", parse_one(sampling), SAMPLINGS)
