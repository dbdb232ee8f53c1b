"""An experiment: the conditions under which algorithms are compared."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedparity.data import Federation
from fedparity.engines import choice
from fedparity.engines.engine import Ids, Setup
from fedparity.engines.evaluation import mixes_examples
from fedparity.engines.inputs import fitted
from fedparity.errors import InputError, unknown
from fedparity.imports import paths_in
from fedparity.learning.frozen import fingerprint, freeze, load_weights
from fedparity.learning.layout import Layout
from fedparity.learning.seeds import seed_for
from fedparity.learning.solver import Solver
from fedparity.learning.task import DTYPES, Factory, Task
from fedparity.learning.tasks import task_for
from fedparity.method import Context, Part
from fedparity.method.algorithm import Algorithm
from fedparity.metrics import Metric, Summary, read_metrics, summaries
from fedparity.metrics.metric import Asked
from fedparity.recipes import algorithm as read_algorithm
from fedparity.recipes import complete
from fedparity.records.rundir import LSTAR
from fedparity.run import lstar
from fedparity.run.conditions import Conditions, Stop
from fedparity.run.given import Given, Told, digest, given, plain
from fedparity.run.lstar import Cost
from fedparity.run.sampling import Population, Sampling
from fedparity.run.sampling import read as read_sampling
from fedparity.spec import call

if TYPE_CHECKING:
    from fedparity.records.result import Result
    from fedparity.reports.tracking import Track
    from fedparity.run.driver import Watcher

ANYHOW = ("loss", "accuracy", "error")
"""What tasks measure anyhow: it may be asked for, and is not measured twice."""
INLINE = 200
"""Clients whose given L* is written into the experiment file."""


@dataclass
class Experiment:
    """A federation, a task, an algorithm and the conditions of the run.

    Parameters
    ----------
    federation
        The clients and their data.
    task
        What is learned; a model factory or its text stands for the federation's default task.
    algorithm
        A text such as ``"eagle(lam=1)+prox"``, an
        :class:`~fedparity.method.algorithm.Algorithm`, a part or a list of parts.
    rounds, cohort, sampling, weighting, drop, min_replies, server_lr, seed, engine, chunk, dtype,
    buffers, trainable, pretrained, evaluate_every, checkpoint_every, keep, lstar, predictions
        See :class:`Conditions`; ``sampling`` may be a
        :class:`~fedparity.run.sampling.Sampling` too.
    solver
        How clients train.
    stop
        When to stop early.
    metrics
        What else is measured of every client: names of :data:`fedparity.metrics.METRICS`, import
        paths such as ``package.module:name(better=higher)``, and :class:`~fedparity.Metric` of
        one's own.

    Notes
    -----
    ``lstar`` takes a rule; or numbers that are known already: a sequence in the order of the
    clients, a Series or a mapping by client, a table with columns ``train``, ``validation`` or
    ``test`` (or ``lstar``, for all of these), the name of a CSV or parquet file with such columns
    and one called ``client``, or the name of a column of the federation's ``about``.
    """

    federation: Federation
    task: Task | Factory | str
    algorithm: str | Algorithm | Part | Sequence[Part] = "fedavg"
    rounds: int = 100
    solver: Solver = field(default_factory=Solver)
    cohort: int | float | None = None
    sampling: str | Sampling = "uniform"
    weighting: str | None = None
    drop: float = 0.0
    min_replies: int = 1
    server_lr: float = 1.0
    seed: int = 0
    engine: str = "auto"
    chunk: int | None = None
    dtype: str = "float32"
    buffers: str = "average"
    trainable: str | None = None
    pretrained: str | Path | None = None
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    keep: str = "last"
    lstar: Given = "best_validation"
    predictions: bool = True
    stop: Stop | None = None
    metrics: Sequence[Asked] | str = ()

    def __new__(cls, *given: Any, **named: Any) -> Experiment:
        """Refuse a setting that there is not, in one line."""
        for name in named:
            if name not in cls.__dataclass_fields__:
                near = "solver" if name in Solver.__dataclass_fields__ else None
                if near:
                    raise InputError(f"'{name}' belongs to the solver: Solver({name}=...)")
                raise unknown("setting of Experiment", name, cls.__dataclass_fields__)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if not isinstance(self.federation, Federation):
            what = type(self.federation).__name__
            raise InputError(
                f"federation is a {what}: deal it to clients first, as in "
                "dataset.split('dirichlet(alpha=0.3)', clients=10), or see Federation.from_frame"
            )
        if isinstance(self.algorithm, Part):
            self.algorithm = [self.algorithm]
        names = Conditions.__dataclass_fields__
        self.given = given(self.lstar, self.federation)
        if self.given is not None:
            self.lstar = plain(self.given, self.federation)
        self.drawing = read_sampling(self.sampling)
        told = {name: getattr(self, name) for name in names}
        self.conditions: Conditions = call(
            "experiment", Conditions, {**told, "sampling": self.drawing.text}
        )
        for name in names:  # as checked: a seed of "3" or of numpy's is the number 3
            setattr(self, name, getattr(self.conditions, name))
        self.sampling = self.drawing
        self.algorithm = read_algorithm(self.algorithm)
        if not isinstance(self.task, Task):
            self.task = task_for(self.federation.kind, self.task)
        self.measured = self._measured()
        self._check()
        self.setup = self._setup()
        self.federation = self.setup.federation
        self._check_parts()
        self.choice = self._choose()

    def _check(self) -> None:
        assert isinstance(self.algorithm, Algorithm)
        for metric in self._watched():
            if metric not in self.summaries:
                raise unknown("summary", metric, ["last", *self.summaries])
            summary = self.summaries[metric]
            if summary.better is None:
                raise InputError(f"'{metric}' is only counted: no value of it is better")
            if summary.column in ("gap", "lstar") and self.lstar == "none":
                raise InputError(f"'{metric}' needs L*: lstar must not be 'none'")
            if summary.column in ("gap", "lstar") and not self._known("validation"):
                raise InputError(f"'{metric}' needs L* on validation, which lstar does not give")
            if not len(self.federation.validation):
                raise InputError(
                    f"'{metric}' is watched on validation examples, and there are none"
                )
        if self.conditions.min_replies > self.cohort_size:
            raise InputError(
                f"min_replies is {self.min_replies}, but only {self.cohort_size} clients are asked"
            )
        self.drawing.check(self.population)
        reading = {fact for part in self.algorithm.parts for fact in part.reads}
        if self.lstar == "none" and "lstar" in reading:
            raise InputError(f"'{self.algorithm.text}' needs L*: lstar must not be 'none'")
        if "lstar" in reading and self.given is not None:
            unknown_ = np.flatnonzero(np.isnan(lstar.deciding(self.given)))
            if len(unknown_):
                raise InputError(
                    f"'{self.algorithm.text}' needs L* on validation examples, on training ones "
                    f"where a client has none: lstar gives no such number for client "
                    f"'{self.federation.names[unknown_[0]]}'"
                )
        if self.given is None and self.lstar != "none":
            lstar.rule(str(self.lstar))

    def _measured(self) -> tuple[Metric, ...]:
        """Return the metrics asked for; those that a task has anyhow are not measured twice."""
        assert isinstance(self.task, Task)
        asked = self.metrics
        listed = [asked] if isinstance(asked, str | Metric) else list(asked)
        found = read_metrics([each for each in listed if each not in ANYHOW])
        for metric in found:
            if metric.of is not None and metric.of != self.task.predicts:
                raise InputError(
                    f"metric '{metric.name}' is of {metric.of}, and the task is "
                    f"'{self.task.name}': give your own, fp.Metric(function, better='higher')"
                )
        return found

    @cached_property
    def summaries(self) -> dict[str, Summary]:
        """The summaries that there are of the clients, by name."""
        return summaries({metric.name: metric.meaning for metric in self.measured})

    def _known(self, split: str) -> bool:
        """Tell whether L* on a split will be known of some client."""
        return self.given is None or bool(self.given[split].notna().any())

    def _watched(self) -> list[str]:
        """Return the summaries that decide which model is kept and when to stop."""
        kept = [] if self.keep == "last" else [self.keep]
        return kept if self.stop is None else [*kept, self.stop.metric]

    def _check_parts(self) -> None:
        """Raise all that parts have against this experiment at once."""
        everyone = self.cohort_size == len(self.federation) and not self.drop
        everyone = everyone and not self.drawing.absence
        context = self.context(self.setup.layout.read(self.setup.module)[0])
        problems = []
        own = [p.name for p in self.setup.algorithm.parts if p.personalises]
        buffers = self.setup.local_buffers and self.setup.layout.buffers
        if self.keep != "last" and (own or buffers):
            problems.append(
                f"keep='{self.keep}' keeps shared parameters, but clients are evaluated with what "
                f"{own[0] if own else 'buffers'!r} keeps on them: use keep='last'"
            )
        for part in self.setup.algorithm.parts:
            if "full_participation" in part.needs and not everyone:
                problems.append(
                    f"'{part.name}' needs every client in every round: leave cohort, drop "
                    "and absences out"
                )
            if "plain_sgd" in part.needs and not self.solver.plain:
                problems.append(
                    f"'{part.name}' needs plain SGD: no momentum, weight decay, clipping or Adam"
                )
            if self.cohort_size < part.fewest:
                problems.append(
                    f"'{part.name}' needs at least {part.fewest} clients a round, and "
                    f"{self.cohort_size} are asked: ask more, or change its settings"
                )
            try:
                part.validate(context)
            except InputError as error:
                problems.append(str(error))
        if problems:
            raise InputError("; ".join(problems))

    def _setup(self) -> Setup:
        assert isinstance(self.algorithm, Algorithm)
        assert isinstance(self.task, Task)
        setup = prepare(
            self.federation,
            self.task,
            self.algorithm,
            self.solver,
            self.conditions,
            self.measured,
        )
        metrics = choice.check_model(setup, self.task)
        for watched in self._watched():
            if self.summaries[watched].column == "accuracy" and "accuracy" not in metrics:
                raise InputError(f"'{watched}' needs accuracies, which the task does not give")
        return setup

    def _choose(self) -> choice.Choice:
        if self.conditions.engine == "vmap":
            choice.check_stackable(self.setup)
        if self.conditions.engine != "auto":
            return choice.Choice(self.conditions.engine, "asked for by name")
        return choice.choose(self.setup, self.cohort_size)

    @property
    def cohort_size(self) -> int:
        """Clients asked a round."""
        return cohort_size(self.conditions.cohort, len(self.federation))

    @property
    def by_size(self) -> bool:
        """Whether clients weigh by their examples."""
        if self.conditions.weighting is not None:
            return self.conditions.weighting == "size"
        return self.drawing.weighting == "size"

    @property
    def weights(self) -> str:
        """What clients really weigh by: ``size``, ``uniform``, or ``none`` if each trains alone."""
        if self.setup.algorithm.alone:
            return "none"
        return self.setup.algorithm.own_weights or ("size" if self.by_size else "uniform")

    @property
    def evaluation_interval(self) -> int:
        """Rounds between evaluations."""
        return self.conditions.evaluate_every or max(1, self.rounds // 20)

    @cached_property
    def population(self) -> Population:
        """The clients as a sampling sees them."""
        federation = self.federation
        return Population(federation.names, federation.train.sizes, self.cohort_size, self.seed)

    def sample(self, round: int) -> Ids:
        """Return the cohort of a round, ascending, where the sampling tells it before a run."""
        if not self.drawing.ahead:
            raise InputError(
                f"the cohorts of '{self.drawing.name}' depend on the run: they are not known before"
            )
        return self.drawing.draw(round, {}, self.population, _unasked)[0]

    def context(self, x: Tensor) -> Context:
        """Return the server's view before the first round."""
        sizes = torch.from_numpy(self.federation.train.sizes.copy())
        everyone = torch.arange(len(sizes))
        return Context(
            round=0,
            population=len(sizes),
            sizes=sizes,
            clients=everyone,
            prior=x.new_zeros(0),
            steps=everyone,
            lr=self.solver.lr,
            x=x,
            layout=self.setup.layout,
            by_size=self.by_size,
            cohort=self.cohort_size,
            solver=self.solver,
            parts=self.setup.algorithm.parts,
            seed=self.seed,
            validation=torch.from_numpy(self.federation.validation.sizes.copy()),
            chance=self.drawing.chance if self.drawing.ahead else "losses",
            local_buffers=self.setup.local_buffers,
        )

    def cost_alone(self) -> Cost | None:
        """Return what finding L* takes at most; None where it is given, known or not wanted."""
        if self.given is not None or self.lstar == "none":
            return None
        rule = lstar.rule(str(self.lstar))
        known = lstar.is_cached(self.setup, rule, self.choice.name)
        return None if known else lstar.cost(self.setup, rule)

    def describe(self) -> dict[str, Any]:
        """Return everything needed to run the experiment again, as plain values."""
        assert isinstance(self.algorithm, Algorithm)
        assert isinstance(self.task, Task)
        recipe = self.federation.recipe
        solver = {k: v for k, v in vars(self.solver).items() if not k.startswith("_")}
        return {
            **({"data": dict(recipe)} if recipe is not None else {}),
            "task": self.task.text,
            **({"model": self.task.model_text} if self.task.model_text is not None else {}),
            "algorithm": complete(self.algorithm),
            "solver": solver,
            **{name: getattr(self.conditions, name) for name in Conditions.__dataclass_fields__},
            "lstar": self._told_lstar(),
            **(
                {"stop": {"metric": self.stop.metric, "patience": self.stop.patience}}
                if self.stop
                else {}
            ),
            **({"metrics": [m.text for m in self.setup.metrics]} if self.setup.metrics else {}),
            "engine": self.choice.name,
            "record": {
                "written_as": self.algorithm.text,
                "weights": self.weights,
                **({"metrics": _told(self.setup.metrics)} if self.setup.metrics else {}),
                **({"softens": soft} if (soft := self.algorithm.softens) else {}),
                "engine_reason": self.choice.reason,
                "federation": self.federation.fingerprint,
                "clients": len(self.federation),
                "inputs": list(self.federation.shape),
                "outputs": self.federation.outputs,
                **({"classes": list(classes)} if (classes := self.federation.classes) else {}),
                **({"predicts": self.task.predicts} if self.task.predicts else {}),
                **({} if self.federation.train.x.is_floating_point() else {"whole_inputs": True}),
                "parameters": self.setup.layout.size,
                "command": _command(self.choice.name),
                "python": platform.python_version(),
                "versions": {name: _version(name) for name in ("fedparity", "torch", "numpy")},
            },
        }

    def _told_lstar(self) -> Told:
        """Return the rule or the numbers; of many clients the file that the run keeps them in."""
        told = self.conditions.lstar
        return told if isinstance(told, str) or len(told) <= INLINE else LSTAR

    @property
    def foreign(self) -> tuple[str, ...]:
        """The import paths of what is not fedparity's own, as the experiment file has them."""
        return tuple(map(str, paths_in(self.describe())))

    def identity(self) -> dict[str, Any]:
        """Return what a run that is resumed must agree with."""
        told = self.describe()
        free = {"rounds", "evaluate_every", "checkpoint_every", "chunk", "record", "data", "model"}
        free |= {"metrics", "predictions"}
        still = fingerprint(self.setup.module)  # a checkpoint holds what moves
        return {
            "federation": self.federation.fingerprint,
            "parameters": self.setup.layout.size,
            **{key: value for key, value in told.items() if key not in free},
            "sampling": self.drawing.identity,
            "lstar": digest(self.conditions.lstar),
            **({} if still is None else {"digest of what is frozen": still}),
        }

    def run(
        self,
        out: str | Path | None = None,
        watch: Watcher | None = None,
        reference: Result | None = None,
        track: Track = (),
    ) -> Result:
        """Run from the first round.

        Parameters
        ----------
        out
            A new directory for the results; None keeps them in memory.
        watch
            Called with what happens, for progress; None shows a bar where there is a terminal.
        reference
            The result of FedAvg under the same conditions: a warning tells if this run levelled
            down against it.
        track
            Who is given the numbers of every round: names of :mod:`fedparity.reports.tracking`,
            such as ``"csv"`` or ``"mlflow"``, or functions of a dict.
        """
        from fedparity.run.driver import Run

        choice.check_here(self.choice.name)
        result = Run(self, out, watch, track).start()
        if reference is not None:
            result.warn_of_levelling_down(reference)
        return result

    def resume(
        self, directory: str | Path, watch: Watcher | None = None, track: Track = ()
    ) -> Result:
        """Go on from the last checkpoint of a run of this same experiment."""
        from fedparity.run.driver import Run

        choice.check_here(self.choice.name)
        return Run(self, directory, watch, track).resume()


def prepare(
    federation: Federation,
    task: Task,
    algorithm: Algorithm,
    solver: Solver,
    conditions: Conditions,
    metrics: tuple[Metric, ...] = (),
) -> Setup:
    """Return what engines work on, with a fresh module and its data in the right dtype."""
    dtype, seed = DTYPES[conditions.dtype], seed_for(conditions.seed, "model")
    module = task.build(federation.shape, federation.outputs, seed, dtype)
    module = freeze(module, conditions.trainable)
    if conditions.pretrained is not None:
        module = load_weights(module, conditions.pretrained)
    federation = fitted(federation, module, dtype)
    layout = Layout(module)
    exact = algorithm.having("examples")
    if exact and mixes_examples(module):
        raise InputError(
            f"'{exact[0].name}' takes the gradient of every example by itself, which a model with "
            "BatchNorm does not have: use GroupNorm or LayerNorm"
        )
    if layout.buffers and conditions.buffers == "refuse":
        raise InputError(f"the model has buffers ('{layout.buffers[0].name}') and buffers='refuse'")
    local = conditions.buffers == "local" or algorithm.local_buffers
    return Setup(
        federation,
        task,
        module,
        layout,
        algorithm,
        solver,
        conditions.seed,
        conditions.rounds,
        local_buffers=local,
        metrics=metrics,
    )


def _told(metrics: Sequence[Metric]) -> dict[str, dict[str, str]]:
    """Return what the record tells of metrics."""
    return {metric.name: metric.meaning._asdict() for metric in metrics}


def _unasked(clients: Ids) -> tuple[Ids, Tensor]:
    """Stand in for the losses of clients where nobody can be asked."""
    raise AssertionError("a sampling that draws ahead asks for losses")


def cohort_size(cohort: int | float | None, population: int) -> int:
    """Return how many clients are asked a round: all, a share of them, or a whole number."""
    if cohort is None:
        return population
    if isinstance(cohort, float) and cohort <= 1:
        return max(1, round(cohort * population))
    if cohort > population or cohort != int(cohort):
        raise InputError(f"cohort is {cohort:g}: a share, or a whole number up to {population}")
    return int(cohort)


def _command(engine: str) -> list[str]:
    """Return the command line; Flower starts its apps with a token, which is nobody's business."""
    if engine == "flower":
        return ["flwr", "run"]
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
