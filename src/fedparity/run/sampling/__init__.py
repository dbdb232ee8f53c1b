"""Who is asked in a round: samplings by name, and the grammar that reads them.

>>> read("power_of_choice(candidates=20)")
PowerOfChoice(candidates=20, signal='fresh')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedparity import imports
from fedparity.errors import InputError, absent
from fedparity.imports import Allowed
from fedparity.run.sampling.available import Available as Available
from fedparity.run.sampling.plain import Size as Size
from fedparity.run.sampling.plain import SizeReplaced as SizeReplaced
from fedparity.run.sampling.plain import Uniform as Uniform
from fedparity.run.sampling.power_of_choice import PowerOfChoice as PowerOfChoice
from fedparity.run.sampling.sampling import Losses as Losses
from fedparity.run.sampling.sampling import Population as Population
from fedparity.run.sampling.sampling import Sampling as Sampling
from fedparity.run.sampling.sampling import State as State
from fedparity.spec import parse_one

SAMPLINGS: dict[str, type[Sampling]] = {
    kind.name: kind for kind in (Uniform, Size, SizeReplaced, PowerOfChoice, Available)
}


def read(sampling: object, allowed: Allowed | None = None) -> Sampling:
    """Return the sampling that a text names; a sampling is returned as it is.

    ``allowed`` is the code that the text may name; by default what it names itself, as a text that
    is written in a program may.
    """
    if isinstance(sampling, Sampling):
        return sampling
    if not isinstance(sampling, str):
        raise InputError(f"sampling is a text such as 'uniform', got {str(sampling)[:80]!r}")
    if allowed is None:
        allowed = Allowed.by(named=sampling)
    return imports.make("sampling", parse_one(sampling), SAMPLINGS, allowed, Sampling)


if not TYPE_CHECKING:  # a type checker finds a wrong name by itself

    def __getattr__(name: str) -> Any:
        raise absent("fedparity.sampling", name, [kind.__name__ for kind in SAMPLINGS.values()])
