"""An experiment: the conditions under which algorithms are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedparity.arguments import checked, named
from fedparity.data import Federation
from fedparity.engines import choice
from fedparity.engines.engine import Ids, Setup
from fedparity.errors import InputError
from fedparity.imports import paths_in
from fedparity.learning.solver import Solver
from fedparity.learning.task import Factory, Task
from fedparity.learning.tasks import task_for
from fedparity.method import Context, Grouping, Part
from fedparity.method.algorithm import Algorithm
from fedparity.metrics import Metric, Summary, read_metrics, summaries
from fedparity.metrics.metric import Asked
from fedparity.recipes import algorithm as read_algorithm
from fedparity.run import lstar, lstar_cache, lstar_rules
from fedparity.run.conditions import Conditions, Stop
from fedparity.run.describing import describe, identity
from fedparity.run.given import Given, given, plain
from fedparity.run.lstar import Cost
from fedparity.run.preparing import cohort_size, prepare
from fedparity.run.refusing import check_kinds, check_parts, check_settings
from fedparity.run.sampling import Population, Sampling
from fedparity.run.sampling import read as read_sampling
from fedparity.run.unseen import Unseen, apart, check_unseen
from fedparity.spec import call

if TYPE_CHECKING:
    from fedparity.records.result import Result
    from fedparity.reports.tracking import Track
    from fedparity.run.watching import Watcher

ANYHOW = ("loss", "accuracy", "error")
"""What tasks evaluate anyhow: it may be asked for, and is not evaluated twice."""


@named
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
    rounds, cohort, sampling, weighting, drop, min_replies, server_lr, seed, engine, chunk, device,
    dtype, buffers, trainable, pretrained, evaluate_every, checkpoint_every, keep, lstar,
    unseen, predictions, personal
        See :class:`Conditions`; ``sampling`` may be a
        :class:`~fedparity.run.sampling.Sampling` too.
    solver
        How clients train.
    stop
        When to stop early.
    metrics
        What else is evaluated of every client: names of :data:`fedparity.metrics.METRICS`, import
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
    device: str = "cpu"
    dtype: str = "float32"
    buffers: str = "average"
    trainable: str | None = None
    pretrained: str | Path | None = None
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    keep: str = "last"
    lstar: Given = "best_validation"
    unseen: Unseen = None
    predictions: bool = True
    personal: bool = True
    stop: Stop | None = None
    metrics: Sequence[Asked] | str = ()

    def __new__(cls, *given: Any, **others: Any) -> Experiment:
        """Say of a setting of the solver where it belongs."""
        for name in others:
            if name not in cls.__dataclass_fields__ and name in Solver.__dataclass_fields__:
                raise InputError(f"'{name}' belongs to the solver: Solver({name}=...)")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if not isinstance(self.federation, Federation):
            what = type(self.federation).__name__
            raise InputError(
                f"federation is a {what}: deal it to clients first, as in "
                "dataset.split('dirichlet(alpha=0.3)', clients=10), or see Federation.from_frame"
            )
        check_kinds(self.solver, self.stop, self.metrics)
        names = Conditions.__dataclass_fields__
        dealing = {name: getattr(self, name) for name in ("unseen", "seed", "engine")}
        self.federation = apart(self.federation, call("experiment", Conditions, dealing))
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
        self.more_metrics = self._more_metrics()
        check_settings(self)
        self.setup = self._setup()
        self.federation = self.setup.federation
        check_parts(self)
        check_unseen(self)
        self.choice = self._choose()

    def _more_metrics(self) -> tuple[Metric, ...]:
        """Return the metrics asked for; those that a task has anyhow are not evaluated twice."""
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
        return summaries({metric.name: metric.meaning for metric in self.more_metrics})

    def knows_lstar(self, split: str) -> bool:
        """Tell whether L* on a split will be known of some client."""
        return self.given is None or bool(self.given[split].notna().any())

    def watched(self) -> list[str]:
        """Return the summaries that decide which model is kept and when to stop."""
        kept = [] if self.keep == "last" else [self.keep]
        return kept if self.stop is None else [*kept, self.stop.metric]

    def _setup(self) -> Setup:
        assert isinstance(self.algorithm, Algorithm)
        assert isinstance(self.task, Task)
        setup = prepare(
            self.federation,
            self.task,
            self.algorithm,
            self.solver,
            self.conditions,
            self.more_metrics,
        )
        metrics = choice.check_model(setup, self.task)
        for watched in self.watched():
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
            groups=self._groupings(),
            classes=self.federation.outputs if self.federation.kind == "classes" else 0,
        )

    def _groupings(self) -> dict[str, Grouping]:
        """Return the groups of the kinds that parts go by, where the federation has them."""
        wanted = self.setup.algorithm.group_kinds & set(self.federation.groups)
        counts = {kind: self.federation.group_counts(kind) for kind in sorted(wanted)}
        return {
            kind: Grouping(tuple(map(str, table)), torch.from_numpy(table.to_numpy().copy()))
            for kind, table in counts.items()
        }

    def cost_alone(self) -> Cost | None:
        """Return what finding L* takes at most; None where it is given, known or not wanted."""
        if self.given is not None or self.lstar == "none":
            return None
        rule = lstar_rules.rule(str(self.lstar))
        known = lstar_cache.is_cached(self.setup, rule, self.choice.name)
        return None if known else lstar.cost(self.setup, rule)

    @checked
    def describe(self) -> dict[str, Any]:
        """Return everything needed to run the experiment again, as plain values."""
        return describe(self)

    @property
    def foreign(self) -> tuple[str, ...]:
        """The import paths of what is not fedparity's own, as the experiment file has them."""
        return tuple(map(str, paths_in(self.describe())))

    def identity(self) -> dict[str, Any]:
        """Return what a run that is resumed must agree with."""
        return identity(self)

    @checked
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
        from fedparity.records.result import Result
        from fedparity.run.driver import Run

        if not isinstance(reference, Result | None):
            raise InputError("reference is no result: give that of a run of FedAvg")
        if watch is not None and not hasattr(watch, "stage"):
            raise InputError("watch is no watcher: it needs the methods stage and advance")
        choice.check_here(self.choice.name)
        result = Run(self, out, watch, track).start()
        if reference is not None:
            result.warn_of_levelling_down(reference)
        return result

    @checked
    def resume(
        self, directory: str | Path, watch: Watcher | None = None, track: Track = ()
    ) -> Result:
        """Go on from the last checkpoint of a run of this same experiment."""
        from fedparity.run.driver import Run

        choice.check_here(self.choice.name)
        return Run(self, directory, watch, track).resume()


def _unasked(clients: Ids) -> tuple[Ids, Tensor]:
    """Stand in for the losses of clients where nobody can be asked."""
    raise AssertionError("a sampling that draws ahead asks for losses")
