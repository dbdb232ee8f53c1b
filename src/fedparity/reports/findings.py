"""Who gains and who pays, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedparity.certainty import FEW, GAINS, PAYS, UNTOLD
from fedparity.metrics import ClientFrame, LevellingDown
from fedparity.records.result import Result
from fedparity.reports.numbers import (
    BY_TRAINING,
    CAPPED,
    TOGETHER,
    UNKEPT,
    Results,
    Row,
    by_name,
    by_training,
    frames_of,
    has_gaps,
    metrics_of,
    no_better,
    with_verdicts,
)

OUTSIDE = (
    "Numbers of evaluations, L* and these tables are made from the clients' data without noise: "
    "no epsilon covers them."
)
NAMED = 5
"""Clients called by name in a sentence; of more, it gives the number."""
NOT_JOINED = "Each client trained alone: there is nothing to gain or to pay by joining."


def headlines(result: Result) -> list[str]:
    """Return what the clients of one run got, in a few sentences; of one that diverged, nothing."""
    if result.diverged:
        return cautions({"": result})
    frame = result.frame
    gains = [NOT_JOINED] if result.alone else _gains(with_verdicts(result))
    return [*gains, *_accuracies(frame), *cautions({"": result})]


def divergences(results: Results) -> list[str]:
    """Say which runs diverged, and what shows it."""
    return [f"{name} diverged: {r.diverged}." for name, r in results.items() if r.diverged]


def privacy(results: Results) -> list[str]:
    """Say what each run can say of its clients' privacy, and which ended on a budget."""
    found = []
    for name, result in results.items():
        about = f"{name}, " if len(results) > 1 else ""
        found += [f"Privacy: {about}{line}." for line in result.privacy]
        if result.privacy:
            found.append(OUTSIDE)
        if result.stopped:
            found.append(f"Ended early: {about}{result.stopped}.")
    return list(dict.fromkeys(found))


def cautions(results: Results) -> list[str]:
    """Return what a reader of the numbers should know."""
    clients = next(iter(results.values())).clients
    tested = clients["n_test"]
    few, none = int(((tested < FEW) & (tested > 0)).sum()), int((tested == 0).sum())
    found = []
    if few:
        doubt = (
            "the standard error of such an accuracy may exceed 10 points"
            if "test_accuracy" in clients
            else "such a loss says little"
        )
        found.append(f"{_clients(few)} fewer than {FEW} test examples: {doubt}.")
    if none:
        found.append(f"{_clients(none)} no test example and no number here.")
    alone = _cautions_on_lstar(next(iter(results.values())).frame)
    return [*based(results), *found, *_undefined(results), *alone, *_absences(results)]


def based(results: Results) -> Iterator[str]:
    """Yield who is served no better than by a guess that looks at no input."""
    for name, frame in frames_of(results).items():
        poor = no_better(frame)
        if not poor or results[name].diverged:
            continue
        under = f"Under {name}, " if len(results) > 1 else ""
        rows = by_name(frame)
        if len(poor) > 1:
            whose = f"{len(poor)} of {len(rows)} clients ({shortened(poor)}) are"
        else:
            whose = f"{poor[0]} is"
        yield f"{under}{whose} served no better than by {_base(rows, poor)}."


def _base(rows: Mapping[str, Row], poor: Sequence[str]) -> str:
    """Return what the base rate is, with its number where it is of one client."""
    row, plural = rows[poor[0]], len(poor) > 1
    if "test_base_accuracy" in row:
        what = f"always answering {'their' if plural else 'its'} most frequent training class"
        base, own, form = "test_base_accuracy", "test_accuracy", "{:.1%}"
    else:
        what = f"always answering the mean of {'their' if plural else 'its'} training values"
        base, own, form = "test_base_loss", "test_loss", "a loss of {:.3f}"
    if plural:
        return what
    return f"{what}: {form.format(row[own])} where that has {form.format(row[base])}".replace(
        "%", " %"
    )


def _undefined(results: Results) -> Iterator[str]:
    """Yield who has no value of a metric, and why."""
    frames = frames_of(results)
    first = next(iter(frames.values()))
    for name in metrics_of(frames):
        rows = first.by_client
        without = rows[rows[f"test_{name}"].isna() & (rows["n_test"] > 0)]["client"]
        if len(without):
            has = "has" if len(without) == 1 else "have"
            whose = first.metrics[name].undefined
            yield f"{_named(list(without))} {has} no {name}: {whose}."


def _absences(results: Results) -> Iterator[str]:
    """Yield who had a part in no round; once where it is the same under all algorithms."""
    missing = {name: absent(result) for name, result in results.items()}
    if len(set(missing.values())) == 1:
        missing = {"": next(iter(missing.values()))}
    for name, clients in missing.items():
        if clients:
            under = f"Under {name}, " if name else ""
            count = "1 client" if len(clients) == 1 else f"{len(clients)} clients"
            whose = "its examples" if len(clients) == 1 else "their examples"
            yield (
                f"{under}{count} took part in no round ({shortened(clients)}): the model was "
                f"trained without {whose}."
            )


def absent(result: Result) -> tuple[str, ...]:
    """Return the clients that were never drawn, or failed whenever they were."""
    if "rounds_answered" not in result.clients:
        return ()
    rows = result.clients[result.clients["rounds_answered"] == 0]
    return tuple(str(name) for name in rows["client"])


def shortened(names: Sequence[str]) -> str:
    """Return the first of the names, and how many more there are.

    >>> shortened(["a", "b"]), shortened(["a", "b", "c", "d", "e", "f", "g"])
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _cautions_on_lstar(frame: ClientFrame) -> Iterator[str]:
    """Yield what is to be said of the L* of some clients, which is the same in all runs."""
    if not has_gaps({"": frame}):
        return
    rows = by_name(frame)
    capped = [name for name, row in rows.items() if row.get("lstar_capped")]
    if capped:
        rounds = max(int(rows[name]["lstar_rounds"]) for name in capped)
        yield (
            f"{CAPPED} still improving after {rounds} rounds alone, so that L* may be lower and "
            f"the gap larger: {_named(capped)}."
        )
    trained = [name for name, row in rows.items() if by_training(row)]
    if trained:
        yield (
            f"{BY_TRAINING} without a validation example: L* is of the model with the least "
            "training loss, and a method that goes by gaps takes the one on training examples: "
            f"{_named(trained)}."
        )


def _named(names: list[str]) -> str:
    """Return how many clients these are, and the first of them."""
    return f"{_number(len(names))} ({shortened(names)})"


def _number(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"


def weights(results: Results) -> str:
    """Say by what the compared algorithms weigh clients, and whether it is the same for all."""
    found = {name: result.weights for name, result in results.items() if result.weights}
    if len(found) < 2:
        return ""
    if set(found.values()) == {"uniform"}:
        return "All with uniform weights: every client counts the same."
    if set(found.values()) == {"size"}:
        return "All with weights by size: every training example counts the same."
    told = [
        f"{what} {', '.join(name for name, kind in found.items() if kind == by)}"
        for by, what in (("size", "by size:"), ("uniform", "uniform:"))
    ]
    return f"Not all with the same weights, which by itself makes them differ: {'; '.join(told)}."


def levelling(results: Results, baseline: str) -> str:
    """Say in one sentence which algorithms levelled down against the baseline, if any."""
    if results[baseline].diverged:
        return f"Levelling down cannot be judged: {baseline} diverged."
    frames = frames_of(results)
    verdicts: dict[str, LevellingDown] = {}
    for name in judged(results, baseline):
        found = frames[name].compare(frames[baseline]).levelling
        if found is not None:
            verdicts[name] = found
    if not verdicts or not has_gaps(frames):
        return "Levelling down cannot be judged: there are no loss gaps to compare."
    down = [
        f"{name} (largest gap {v.dW:+.3f}, smallest gap {v.dB:+.3f}{_advice(results[name])})"
        for name, v in verdicts.items()
        if v.verdict == "levelling_down"
    ]
    if not down:
        return (
            f"No algorithm levelled down against {baseline}: none made gaps more equal merely by "
            "harming the best-off client."
        )
    return (
        f"Levelled down against {baseline}: {', '.join(down)}; gaps are more equal, but the "
        "worst-off client is no better off and the best-off one is worse off."
    )


def judged(results: Results, baseline: str) -> list[str]:
    """Return the algorithms to judge against the baseline: that federate and did not diverge."""
    if results[baseline].alone:
        return []
    return [
        name
        for name, result in results.items()
        if name != baseline and not result.alone and not result.diverged
    ]


def _advice(result: Result) -> str:
    return f"; {result.softens}" if result.softens else ""


def _gains(frame: ClientFrame) -> list[str]:
    if not has_gaps({"": frame}):
        return []
    largest = frame.worst(by="gap").iloc[0]
    told = (
        f"{largest['client']} has the largest loss gap: its loss is {abs(largest['test_gap']):.3f} "
        f"{'above' if largest['test_gap'] > 0 else 'below'} the best it reaches alone "
        f"({largest['test_lstar']:.3f})."
    )
    if "verdict" not in largest:
        return [f"{UNKEPT}.", told]
    rows = frame.by_client
    counts = [
        f"{_named(list(who)) if len(who) else 'no client'} {word if len(who) < 2 else plural}"
        for word, plural in ((GAINS, "certainly gain"), (PAYS, "certainly pay"))
        for who in [rows.loc[rows["verdict"] == word, "client"]]
    ]
    rest = int((rows["verdict"] == UNTOLD).sum())
    open_ = f"; of {_number(rest)} it {UNTOLD}" if rest else ""
    joined = f"By joining {', and '.join(counts)}{open_} ({TOGETHER})."
    return [joined, told]


def _accuracies(frame: ClientFrame) -> list[str]:
    summary = frame.summary()
    if "mean_accuracy" not in summary or not (frame.by_client["n_test"] > 0).any():
        return []
    worst = frame.worst().iloc[0]
    return [
        f"The mean accuracy is {summary['mean_accuracy']:.1f} %; {worst['client']} has the lowest, "
        f"{100 * worst['test_accuracy']:.1f} %."
    ]


def _clients(count: int) -> str:
    return "1 client has" if count == 1 else f"{count} clients have"
