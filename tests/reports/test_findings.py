"""The sentences of a report."""

from __future__ import annotations

import math

from clients import run

from fedparity.reports.findings import cautions, divergences, headlines, levelling, weights

EQUAL = [1.0, 1.0, 1.0]


def gapped(*gaps: float):
    """Return three clients with these loss gaps over an optimum of 1."""
    return run(None, [1 + gap for gap in gaps], EQUAL)


def test_the_headline_counts_who_gains_and_names_who_pays_most():
    told = headlines(run([0.9, 0.7], [0.3, 0.8], [0.4, 0.2]))
    # gaps -0.1 and 0.6, of 100 examples each whose gaps are 0.1 above or below these
    assert told[0] == (
        "By joining 1 client (client-0) certainly gains, and 1 client (client-1) certainly pays "
        "(at 95 % for all clients of a run together)."
    )
    assert told[1] == (
        "client-1 has the largest loss gap: its loss is 0.600 above the best it reaches alone "
        "(0.200)."
    )
    assert told[2] == "The mean accuracy is 80.0 %; client-1 has the lowest, 70.0 %."


def test_the_headline_says_when_nobody_gains_and_of_whom_it_cannot_be_told():
    assert headlines(gapped(0.01, 0.2, 0.3))[0].startswith(
        "By joining no client certainly gains, and 2 clients (client-1, client-2) certainly pay; "
        "of 1 client it cannot be told"
    )


def test_without_the_losses_of_single_examples_nobody_is_said_to_gain():
    told = headlines(run(None, [0.3, 0.8], [0.4, 0.2], kept=False))
    assert told[0].startswith("Who gains and pays cannot be told")
    assert not any("certainly" in sentence for sentence in told)


def test_who_was_still_improving_alone_is_named():
    more = {"lstar_rounds": [7, 30, 30], "lstar_capped": [False, True, True]}
    told = headlines(run([0.9, 0.7, 0.8], [1.0, 1.2, 1.1], EQUAL, alone=more))
    assert told[-1] == (
        "~ still improving after 30 rounds alone, so that L* may be lower and the gap larger: "
        "2 clients (client-1, client-2)."
    )


def test_gaps_on_training_examples_among_others_are_told_of():
    more = {"n_validation": [0] * 7, "validation_lstar": [math.nan] * 6 + [0.1]}
    told = headlines(run([0.9] * 7, [1.0] * 7, [1.0] * 7, alone=more))
    assert told[-1].startswith("t without a validation example: L* is of the model with the least")
    # the last one has an L* on validation: it has examples, but could not be evaluated
    assert "6 clients (client-0, client-1, client-2, client-3, client-4 and 1 more)" in told[-1]


def test_who_only_harms_the_best_client_levels_down():
    # baseline gaps 0, 1, 2; b moves the best client up and no other: closer, but nobody is helped
    frames = {"fedavg": gapped(0, 1, 2), "b": gapped(0.5, 1, 2)}
    told = levelling(frames, "fedavg")
    assert told.startswith("Levelled down against fedavg: b (largest gap +0.000, smallest gap +0.5")


def test_who_levels_down_is_told_the_setting_of_the_method():
    levelled = run(None, [1.5, 2.0, 3.0], EQUAL, softens="lower q")
    told = levelling({"fedavg": gapped(0, 1, 2), "b": levelled}, "fedavg")
    assert "b (largest gap +0.000, smallest gap +0.500; lower q)" in told


def test_who_trains_alone_neither_gains_nor_pays():
    alone = run([0.9, 0.7], [0.3, 0.8], [0.4, 0.2], weights="none")
    told = headlines(alone)
    assert told[0].startswith("Each client trained alone")
    assert not any("gain from" in sentence or "pays most" in sentence for sentence in told)


def test_training_alone_is_neither_judged_nor_a_baseline():
    alone = run(None, [1.5, 2.0, 3.0], EQUAL, weights="none")
    runs = {"fedavg": gapped(0, 1, 2), "local": alone}
    assert "local" not in levelling(runs, "fedavg")
    assert levelling(runs, "local").startswith("Levelling down cannot be judged")


def test_who_took_part_in_no_round_is_named():
    told = cautions({"a": run([0.9, 0.8, 0.7], answered=[3, 0, 1])})
    assert told == [
        "1 client took part in no round (client-1): the model was trained without its examples."
    ]
    many = cautions({"a": run([0.5] * 9, answered=[0] * 8 + [1])})
    assert many[0].startswith("8 clients took part in no round (client-0, client-1,")
    assert "client-4 and 3 more)" in many[0]
    assert cautions({"a": run([0.9, 0.8], answered=[1, 4])}) == []


def test_who_was_absent_under_one_algorithm_alone_is_told_with_its_name():
    some, other = run([0.9, 0.8], answered=[2, 0]), run([0.9, 0.8], answered=[2, 1])
    assert len(cautions({"a": some, "b": some})) == 1
    assert [told[:26] for told in cautions({"a": some, "b": other})] == [
        "Under a, 1 client took par"
    ]


def test_of_a_run_that_diverged_only_that_is_said():
    worse = run([0.9, 0.7], [0.3, 0.8], [0.4, 0.2], diverged="the mean loss is 9")
    assert headlines(worse) == []
    assert divergences({"a": worse, "b": run([0.9])}) == ["a diverged: the mean loss is 9."]


def test_who_diverged_is_neither_judged_nor_a_baseline():
    worse = run(None, [1.5, 2.0, 3.0], EQUAL, diverged="the mean loss is 9")
    runs = {"fedavg": gapped(0, 1, 2), "b": worse}
    assert "b" not in levelling(runs, "fedavg").split()
    assert levelling(runs, "b") == "Levelling down cannot be judged: b diverged."


def test_few_test_examples_make_a_loss_doubtful_too():
    told = cautions({"a": run(None, [0.3, 0.8], n_test=[3, 100])})
    assert told == ["1 client has fewer than 25 test examples: such a loss says little."]


def test_one_weighting_for_all_is_said():
    uniform, by_size = run([0.9], weights="uniform"), run([0.9], weights="size")
    alone = run([0.9], weights="none")
    assert weights({"a": uniform, "b": uniform, "c": alone}).startswith("All with uniform weights")
    assert weights({"a": by_size, "b": by_size}).startswith("All with weights by size")
    told = weights({"fedavg": by_size, "a": uniform, "b": uniform})
    assert told.endswith("by size: fedavg; uniform: a, b.")
    assert weights({"a": uniform}) == weights({"a": uniform, "b": alone}) == ""


def test_who_helps_the_worst_client_does_not_level_down():
    frames = {"fedavg": gapped(0, 1, 2), "b": gapped(0.5, 1, 1.5)}
    assert levelling(frames, "fedavg").startswith("No algorithm levelled down against fedavg")


def test_levelling_down_needs_gaps():
    frames = {"fedavg": run([0.9, 0.7]), "b": run([0.8, 0.8])}
    assert levelling(frames, "fedavg").startswith("Levelling down cannot be judged")
