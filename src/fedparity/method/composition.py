"""What is wrong with a list of parts, told before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from itertools import pairwise

from fedparity.errors import InputError
from fedparity.method.facts import AFTER, FACTS
from fedparity.method.part import HOOKS, Part

KNOWN = frozenset(name for name in dir(Part) if not name.startswith("__"))
TOLD = frozenset(
    {"name", "paper", "reconstructed", "equalises", "learns", "reports", "neutral", "softens"}
)
"""What a part tells of itself; without more it does nothing."""
STEPS = frozenset({"start", "tracks", "look", "carry", "loss", "second", "examples", "grad"})
"""Hooks of the local training loop."""
STEPPED: frozenset[str] = AFTER - {"end_loss"}
"""Facts of its steps."""
FORMER = {"measure": "probe"}
"""Names that hooks once had."""
CLOSE = 0.8
"""Likeness of a method's name to a hook's from which it is taken for a misspelling."""


def check_kind(part: object) -> None:
    """Refuse what is no part, a part without name or hooks, and settings that cannot be written."""
    if isinstance(part, type) and issubclass(part, Part):
        raise InputError(f"{part.__name__} is a class: write {part.__name__}(...)")
    if not isinstance(part, Part):
        raise InputError(f"{part!r} is not a part")
    kind = type(part)
    name = getattr(part, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"{kind.__name__} has no name: write name = 'a_word' in the class")
    if not is_dataclass(part) and kind.__init__ is not object.__init__:
        raise InputError(f"part '{name}' has settings: make it a frozen dataclass of them")
    for wrong in _own_methods(kind):
        near = [FORMER[wrong]] if wrong in FORMER else get_close_matches(wrong, HOOKS, 1, CLOSE)
        if near:
            raise InputError(
                f"part '{name}' has a method '{wrong}', which nobody calls: did you mean the hook "
                f"'{near[0]}'? (a helper of your own begins with an underscore)"
            )
    if not any(known in vars(home) for home in _own_homes(kind) for known in KNOWN - TOLD):
        raise InputError(f"part '{name}' does nothing: it has none of the hooks {', '.join(HOOKS)}")


def problems(parts: Sequence[Part]) -> list[str]:
    """Return all that is wrong with parts standing together, in this order."""
    names = [part.name for part in parts]
    twice = sorted({name for name in names if names.count(name) > 1})
    return [
        *(f"'{name}' stands twice" for name in twice),
        *_facts(parts),
        *_combining(parts),
        *_weighing(parts),
        *_traits(parts),
    ]


def _own_methods(kind: type) -> Iterator[str]:
    """Yield the public methods of a part's class that are not of Part."""
    for home in _own_homes(kind):
        for name, value in vars(home).items():
            if callable(value) and not name.startswith("_") and name not in KNOWN:
                yield name


def _own_homes(kind: type) -> list[type]:
    """Return the classes of a part below Part."""
    return [home for home in kind.__mro__ if issubclass(home, Part) and home is not Part]


def _facts(parts: Sequence[Part]) -> Iterator[str]:
    own = {name: part.name for part in parts for name in part.own_facts}
    for part in parts:
        for name in sorted(set(part.own_facts) & (set(FACTS) | KNOWN)):
            yield f"'{part.name}' calls a fact of its own '{name}', which has a meaning already"
        wanted = set(part.reads).union(*part.points.values())
        for name in sorted(wanted - set(FACTS) - set(part.own_facts)):
            whose = f" (it is a fact of '{own[name]}')" if name in own else ""
            near = get_close_matches(name, FACTS, 1)
            guess = f": did you mean '{near[0]}'?" if near else f": there are {', '.join(FACTS)}"
            yield f"'{part.name}' reads the unknown fact '{name}'{whose}{guess}"
        for point, facts in part.points.items():
            for name in sorted(f for f in facts if f in FACTS and not FACTS[f].at):
                yield f"'{part.name}' wants '{name}' at its point '{point}', where there is none"


def _combining(parts: Sequence[Part]) -> Iterator[str]:
    combining = [part for part in parts if "combine" in part.hooks]
    if len(combining) > 1:
        first, second = combining[:2]
        yield f"'{first.name}' and '{second.name}' both combine the updates: keep one"
    for part in (part for part in parts if part.ignores_weights):
        for other in (other for other in parts if other is not part):
            if "weigh" in other.hooks or "cleans_weights" in other.traits:
                yield (
                    f"'{part.name}' averages in its own way, so the weights of '{other.name}' "
                    "would be ignored: keep one"
                )
    mixing = [part.name for part in parts if "mixture" in part.hooks]
    own = [part.name for part in parts if part.personalises and part.name not in mixing]
    for name in mixing[:1]:
        for also in [*mixing[1:], *own]:
            yield f"'{name}' and '{also}' would each decide what a client predicts: keep one"
    tuning = [part.name for part in parts if part.tuning]
    if len(tuning) > 1:
        yield f"'{tuning[0]}' and '{tuning[1]}' both train before an evaluation: keep one"
    for hook, what in (("second", "a second gradient"), ("examples", "gradients an example")):
        asking = [part.name for part in parts if hook in part.hooks]
        if len(asking) > 1:
            yield f"'{asking[0]}' and '{asking[1]}' both ask for {what}: keep one"
    exact = [part.name for part in parts if "examples" in part.hooks]
    batched = [part.name for part in parts if part.hooks & {"loss", "second"}]
    if exact and batched:
        yield (
            f"'{exact[0]}' takes the gradient of every example by itself, '{batched[0]}' changes "
            "the loss of the batch: keep one"
        )


def _weighing(parts: Sequence[Part]) -> Iterator[str]:
    weighing = [part for part in parts if "weigh" in part.hooks]
    for other, part in pairwise(weighing):
        if "weigh" in part.replaces:
            remedy = "keep one" if "weigh" in other.replaces else f"write '{part.name}' first"
            yield f"'{part.name}' would overwrite the weights of '{other.name}': {remedy}"


def words(part: Part) -> frozenset[str]:
    """Return all by which other parts may refuse to stand with this one.

    These are its traits, the names of its hooks, ``local_steps`` if it does its work in them, and
    ``corrects_gradients`` if it does more to them than pull.
    """
    found = part.traits | part.hooks
    if part.hooks & STEPS or part.reads & STEPPED:
        found |= {"local_steps"}
    if "grad" in part.hooks and not part.pull:
        found |= {"corrects_gradients"}
    return found


def _traits(parts: Sequence[Part]) -> Iterator[str]:
    for place, part in enumerate(parts):
        for trait, reason in part.conflicts.items():
            for other in (p for p in parts if p is not part and trait in words(p)):
                # Of two parts that exclude each other alike, one tells it.
                alike = trait in words(part) and trait in other.conflicts
                if not alike or parts.index(other) < place:
                    yield reason.format(other=other.name)
        for reasons, others in ((part.ahead, parts[:place]), (part.behind, parts[place + 1 :])):
            for trait, reason in reasons.items():
                for other in (p for p in others if trait in words(p)):
                    yield reason.format(other=other.name)
