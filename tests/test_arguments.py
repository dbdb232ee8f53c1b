"""Wrong arguments in Python are told in one line, with the remedy."""

from __future__ import annotations

import pandas as pd
import pytest

import fedparity as fp
from fedparity.parts import Eagle, Prox

WRONG = {
    "unknown setting of Solver 'lrr': did you mean 'lr'?": lambda: fp.Solver(lrr=0.1),
    "Solver: lr should be a valid number": lambda: fp.Solver("fast"),
    "Solver: lr should be greater than 0, got -1": lambda: fp.Solver(lr=-1),
    "Solver: takes steps or epochs, not both": lambda: fp.Solver(steps=1, epochs=1),
    "Solver: takes 10 settings, no more: lr, steps": lambda: fp.Solver(*range(1, 20)),
    "Solver: optimizer should be 'sgd' or 'adam', got 'x'": lambda: fp.Solver(optimizer="x"),
    "unknown setting of Stop 'patients': did you mean": lambda: fp.Stop(patients=3),
    "unknown setting of Eagle 'lamm': did you mean 'lam'?": lambda: Eagle(lamm=1),
    "Eagle: lam should be greater than or equal to 0, got -1": lambda: Eagle(lam=-1),
    "Prox: mu should be a valid number": lambda: Prox(mu=None),
    "Dirichlet: alpha must be given": lambda: fp.Dirichlet(),
    "unknown setting of Dirichlet 'alfa'": lambda: fp.Dirichlet(alfa=1),
    "IID: takes no settings": lambda: fp.IID(3),
}

X, Y, C = [[0.0], [1.0]], [0, 1], ["a", "b"]
TABLE = pd.DataFrame({"u": [0.0, 1.0], "y": Y, "c": C})
DIGITS = fp.datasets.digits()
MADE = fp.Federation.from_arrays
TABLED = fp.Federation.from_frame
WRONG |= {
    "from_arrays: client must be given": lambda: MADE(X, Y),
    "unknown setting of from_arrays 'clients': did you mean 'client'?": lambda: MADE(
        X, Y, clients=C
    ),
    "from_arrays: seed should be a valid integer": lambda: MADE(X, Y, C, seed="x"),
    "fractions 0.2 are not three numbers": lambda: MADE(X, Y, C, fractions=0.2),
    "groups are told by kind": lambda: MADE(X, Y, C, groups=3),
    "rows of different lengths": lambda: MADE([[1], [2, 3]], Y, C),
    "from_frame: target must be given": lambda: TABLED(TABLE, "c"),
    "unknown setting of from_frame 'feature'": lambda: TABLED(TABLE, "c", "y", feature=["u"]),
    "got '3' for names of columns": lambda: TABLED(TABLE, "c", "y", groups=3),
    "no table: give a DataFrame": lambda: TABLED(3, "c", "y"),
    "there is no row": lambda: TABLED(TABLE.iloc[:0], "c", "y"),
    "from_datasets: give a list of torch datasets": lambda: fp.Federation.from_datasets([3]),
    "sequences are told by client": lambda: fp.Federation.from_sequences(3),
    "unknown setting of split 'client': did you mean": lambda: DIGITS.split("iid", client=2),
    "split: clients should be a valid integer": lambda: DIGITS.split("iid", clients=2.5),
    "3 is no partition": lambda: DIGITS.split(3, clients=2),
    "<class 'fedparity.data.partition.IID'> is no part": lambda: DIGITS.split(fp.IID, clients=2),
    "3 is no label noise": lambda: DIGITS.split("iid", clients=2, noise=3),
    "digits: takes no settings, got 'foo'": lambda: fp.datasets.digits(foo=3),
    "synthetic: alpha should be a valid number": lambda: fp.datasets.synthetic(alpha="x"),
    "unknown client '3'": lambda: MADE(X, Y, C).only(3),
    "a federation cannot be held in float32": lambda: MADE(X, Y, C).to("float32"),
}


def asked(task="linear", *rest, **settings):
    return fp.Experiment(MADE(X, Y, C), task, *rest, **settings)


WRONG |= {
    "Federation: names must be given": fp.Federation,
    "compare: data must be given": fp.compare,
    "compare: model should be a valid string": lambda: fp.compare("digits", 3, ["fedavg"], "x"),
    "Metric: better must be given": lambda: fp.Metric(lambda target, output: 1.0),
    "Experiment: task must be given": lambda: fp.Experiment(MADE(X, Y, C)),
    "unknown setting of Experiment 'rouns': did you mean 'rounds'?": lambda: asked(rouns=3),
    "'lr' belongs to the solver: Solver(lr=...)": lambda: asked(lr=0.1),
    "Experiment: takes ": lambda: asked(*[1] * 30),
    "federation is a Dataset: deal it to clients": lambda: fp.Experiment(DIGITS, "linear"),
    "solver is '0.1': give fp.Solver": lambda: asked(solver=0.1),
    "stop is 'gap': give fp.Stop": lambda: asked(stop="gap"),
    "metrics is '3': give names": lambda: asked(metrics=3),
    "'3' is no algorithm: give": lambda: asked("linear", 3),
    "unknown setting of run 'outt': did you mean 'out'?": lambda: asked().run(outt="x"),
    "run: out should be": lambda: asked().run(3),
    "watch is no watcher": lambda: asked().run(watch=3),
    "load: path should be": lambda: fp.load(3),
    "load_model: directory should be": lambda: fp.load_model(3),
}


FRAME = pd.DataFrame({"client": ["a"], "n_train": [1], "n_validation": [0], "n_test": [0]})
SAID = fp.Result(FRAME, pd.DataFrame(), {"record": {"inputs": [2]}}, 1)
WRONG |= {
    "3 is no tracker: give a name (": lambda: asked(lstar="none").run(track=3),
    "describe: takes no settings": lambda: asked().describe(3),
    "unknown setting of describe 'foo'": lambda: MADE(X, Y, C).describe(foo=3),
    "console is a int: give one of rich": lambda: MADE(X, Y, C).describe(3),
    "Dataset: name must be given": lambda: fp.Dataset(),
    "Dataset: x must be given": lambda: fp.Dataset(3),
    "by_client is a int: give a table": lambda: fp.ClientFrame(3),
    "ClientFrame: by_client must be given": lambda: fp.ClientFrame(),
    "ClientFrame: takes by name, as in metrics=": lambda: fp.ClientFrame(FRAME, {}),
    "unknown setting of Classification 'wieghts': did you mean 'weights'?": lambda: (
        fp.Classification("linear", wieghts=3)
    ),
    "unknown setting of Regression 'foo'": lambda: fp.Regression("linear", foo=3),
    "Survival: model must be given": lambda: fp.Survival(),
    "mlp: hidden should be greater than or equal to 1, got 0": lambda: fp.models.mlp(
        (2,), 2, hidden=0
    ),
    "unknown setting of mlp 'hiden': did you mean 'hidden'?": lambda: fp.models.mlp(
        (2,), 2, hiden=3
    ),
    "linear: shape must be given": lambda: fp.models.linear(),
    "lenet: shape ": lambda: fp.models.lenet("a", 3),
    "module 'fedparity.models' has no attribute 'linar': did you mean 'linear'?": lambda: (
        fp.models.linar
    ),
    "module 'fedparity.datasets' has no attribute 'digit': did you mean 'digits'?": lambda: (
        fp.datasets.digit
    ),
    "module 'fedparity.sampling' has no attribute 'Unifrom': did you mean 'Uniform'?": lambda: (
        fp.sampling.Unifrom
    ),
    "module 'fedparity' has no attribute 'Experimnt': did you mean 'Experiment'?": lambda: (
        fp.Experimnt
    ),
    "model: client should be a valid string, got 3": lambda: SAID.model(3),
    "model: which should be 'best' or 'last', got 'frist'": lambda: SAID.model(which="frist"),
    "predict: x must be given": lambda: SAID.predict(),
    "x is a str that is no array of numbers: give a DataFrame": lambda: SAID.predict("new.csv"),
    "x is a list that is no array": lambda: SAID.predict([[1], [1, 2]]),
    "x is a NoneType that is no array": lambda: SAID.predict_proba(None),
    "save_model: file should be": lambda: SAID.save_model(3),
    "load: path ": lambda: fp.Result.load(3),
    "tune: space must be given": lambda: fp.tune(1),
    "experiment is a int: give an Experiment": lambda: fp.tune(1, {}, aim="mean_accuracy"),
    "space is no mapping: give values by name": lambda: fp.tune(asked(), 3, aim="mean_accuracy"),
    "experiment is a int: give an Experiment, or a function": lambda: fp.coalitions(3),
    "runs is a int: give lists of results by setting": lambda: fp.frontier(3),
    "algorithm: what must be given": lambda: fp.algorithm(),
}


DONE = fp.Result(FRAME.assign(test_loss=1.0), pd.DataFrame(), {}, 1)
PREPARED = TABLED(TABLE, "c", "y").preparation
WRONG |= {
    "unknown setting of summary 'foo': Known: split": lambda: DONE.frame.summary(foo=1),
    "summary: takes 1 settings, no more: split": lambda: DONE.summary("test", 3),
    "unknown setting of by_group 'foo'": lambda: DONE.by_group(foo=1),
    "certainty: takes by name, as in metrics=": lambda: DONE.certainty("auc"),
    "reference is no result": lambda: DONE.incomparable("fedavg"),
    "baseline is no client frame": lambda: DONE.frame.compare("fedavg"),
    "count is 'two': give a whole number": lambda: DONE.frame.worst("two"),
    "threshold is 'ten': give a whole number": lambda: DONE.frame.few("ten"),
    "sizes: takes no settings, got 'foo'": lambda: MADE(X, Y, C).sizes(foo=1),
    "label_counts: takes no settings": lambda: MADE(X, Y, C).label_counts(3),
    "plot: limit should be a valid integer": lambda: MADE(X, Y, C).plot("all"),
    "from_arrays: y must be given": lambda: fp.Dataset.from_arrays(X),
    "unknown setting of sample 'foo'": lambda: asked().sample(foo=1),
    "df is a int: give a table": lambda: PREPARED.apply(3),
    "path is a int: name a file": lambda: fp.data.Preparation.load(3),
    "unknown setting of save 'foo'": lambda: PREPARED.save(foo=1),
    "Result: clients must be given": fp.Result,
    "Study: settings must be given": fp.Study,
    "unknown setting of Study 'foo'": lambda: fp.Study(foo=1),
    "a study is of settings, algorithms and a directory": lambda: fp.Study(None, None, None),
    "Tuned: aim must be given": fp.Tuned,
    "Frontier: table must be given": fp.Frontier,
    "Coalitions: names must be given": fp.Coalitions,
    "unknown setting of Algorithm 'foo'": lambda: fp.Algorithm(foo=1),
    "unknown setting of load 'foo'": lambda: fp.datasets.load(foo=1),
    "federation: text should be a valid string": lambda: fp.datasets.federation(3),
    "Uniform: takes no settings": lambda: fp.sampling.Uniform(3),
    "PowerOfChoice: candidates should be a valid integer": lambda: fp.sampling.PowerOfChoice("x"),
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_argument_is_told_in_one_line(line):
    with pytest.raises(fp.InputError) as refused:
        WRONG[line]()
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_a_setting_read_from_a_text_is_told_under_the_name_in_the_text():
    with pytest.raises(fp.InputError, match=r"^eagle: lam should be greater"):
        fp.algorithm("eagle(lam=-1)")


def test_a_single_part_is_an_algorithm():
    assert asked("linear", Prox(mu=1.0)).algorithm.text == "prox"


def test_runs_begun_in_python_tell_what_is_odd_about_their_data_once(capsys):
    made = MADE([[0.125], [1.0]], Y, C)
    for algorithm in ("fedavg", "afl"):
        fp.Experiment(made, "linear", algorithm, rounds=1, lstar="none").run()
    assert capsys.readouterr().err.count("data: clients a, b have one example each: ") == 1
    other = MADE([[0.625], [1.0]], Y, C)
    fp.Experiment(other, "linear", rounds=1, lstar="none").run()
    assert "data: clients a, b have one example each: " in capsys.readouterr().err
