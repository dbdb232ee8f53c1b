"""What a run gives back."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from fedparity.arguments import checked, named
from fedparity.certainty import client_certainty
from fedparity.certainty.clients import CONFIDENCE
from fedparity.certainty.clients import RESAMPLES as MANY
from fedparity.data.prepare import Preparation
from fedparity.errors import InputError, unknown
from fedparity.learning.task import Task
from fedparity.metrics import METRICS, ClientFrame, group_table, meanings, read_metrics
from fedparity.metrics.groups import GROUP, RESAMPLES
from fedparity.metrics.metric import Asked
from fedparity.metrics.summaries import Split
from fedparity.records.history import ROUND, SERVER
from fedparity.records.rundir import RunDir
from fedparity.records.trained import Trained


@named
class Result(Trained):
    """The numbers and the model of a finished run.

    Attributes
    ----------
    clients
        One row a client: examples, losses, accuracies, further metrics, L* and loss gaps, of the
        model each client would really use (its personal one where the algorithm has such); what
        the most frequent of its training classes would get (``test_base_accuracy``; in a
        regression the mean of its values, ``test_base_loss``) and the model it trained alone
        (``test_alone_accuracy``); for how many rounds it trained alone for its L*, and whether it
        was still improving then; and in how many rounds it answered.
    history
        Long table ``round, client, split, model, metric, value, n``.
    settings
        Everything needed to run it again.
    rounds
        Rounds done.
    path
        The run directory, if there is one.
    unseen
        One row a client that never trained, at the shared final model; None where all trained.
    """

    def __init__(
        self,
        clients: pd.DataFrame,
        history: pd.DataFrame,
        settings: dict[str, Any],
        rounds: int,
        module: nn.Module | None = None,
        path: Path | None = None,
    ) -> None:
        told = history["split"] == ROUND if "split" in history else np.zeros(len(history), bool)
        self.clients, self.settings = clients, settings
        self.history, self._told = history[~told].reset_index(drop=True), history[told]
        self._tables: dict[str, pd.DataFrame] = {}
        self._verdicts: pd.DataFrame | None = None
        self.rounds, self.path = rounds, path
        self._module = module
        self.unseen: pd.DataFrame | None = None
        self._personal: dict[str, Tensor] = {}
        self._task: Task | None = None
        self._preparation: Preparation | None = None

    def __repr__(self) -> str:
        what = self.settings["algorithm"]
        return f"Result({what!r}, {len(self.clients)} clients, {self.rounds} rounds)"

    @property
    def weights(self) -> str | None:
        """What clients weigh by: ``size``, ``uniform``, or None where nothing is averaged."""
        found = self.record.get("weights", "none")
        return None if found == "none" else str(found)

    @property
    def diverged(self) -> str | None:
        """Why the run counts as diverged, or None: see :mod:`fedparity.records.divergence`."""
        found = self.record.get("diverged")
        return None if found is None else str(found)

    @property
    def privacy(self) -> list[str]:
        """What can be said of the clients' privacy, a line a part; nothing where none says it."""
        told: dict[str, dict[str, Any]] = self.record.get("privacy") or {}
        return [f"{name}: {each['line']}" for name, each in told.items()]

    @property
    def stopped(self) -> str | None:
        """Why the run ended before its last round, where a privacy budget was spent."""
        found = self.record.get("stopped")
        return None if found is None else str(found)

    @property
    def softens(self) -> str:
        """What to change in the algorithm if it levels down, such as ``lower lam``, or nothing."""
        return str(self.record.get("softens", ""))

    @property
    def frame(self) -> ClientFrame:
        """The clients as a frame that summarises and compares itself."""
        return ClientFrame(self.clients, metrics=meanings(self.record), alone=self.alone)

    def summary(self, split: Split = "test") -> pd.Series[float]:
        """Return one number a metric, over all clients; the epsilon of a run that has one too."""
        told: dict[str, dict[str, Any]] = self.record.get("privacy") or {}
        found = {
            f"{each['unit']}_epsilon": float(each["epsilon"])
            for each in told.values()
            if each["epsilon"] is not None
        }
        summary = self.frame.summary(split)
        return pd.concat([summary, pd.Series(found, dtype=float)]) if found else summary

    def unseen_summary(self, split: Split = "test") -> pd.Series[float]:
        """Return one number a metric, over the clients that never trained."""
        if self.unseen is None:
            raise InputError("every client trained: run the experiment with unseen=0.2, say")
        return ClientFrame(self.unseen, metrics=meanings(self.record)).summary(split)

    def keep(
        self,
        predictions: pd.DataFrame,
        lstar_curves: pd.DataFrame | None,
        task: Task,
        preparation: Preparation | None,
        personal: dict[str, Tensor],
        groups: pd.DataFrame | None = None,
    ) -> None:
        """Take what else is known of a run that has just ended."""
        self._personal = personal
        self._task, self._preparation = task, preparation
        self._tables["predictions"] = predictions
        if groups is not None:
            self._tables["groups"] = groups
        if lstar_curves is not None:
            self._tables["lstar_curves"] = lstar_curves

    @property
    def predictions(self) -> pd.DataFrame:
        """What the final models say of every validation and test example.

        Columns ``client``, ``split``, ``index`` (the example's place among those of the client in
        the split), ``target``, ``output`` or ``output_0``, ``output_1``, ... (the probability of
        each class, or the value), ``loss``, the groups that were given (``group_sex``), and
        ``model``: ``global``, ``personal`` where clients have models of their own, and ``alone``
        for the models behind L*.
        """
        return self._large("predictions", "it was run without predictions, or at sites")

    @property
    def groups(self) -> list[str]:
        """The kinds of groups inside clients that the run knows of, such as ``sex``."""
        if self._has("predictions"):
            names = map(str, self.predictions.columns)
            return [name.removeprefix(GROUP) for name in names if name.startswith(GROUP)]
        if self._has("groups"):
            return self._large("groups", "")["kind"].unique().tolist()
        return []

    def by_group(
        self,
        kind: str,
        *,
        metrics: Iterable[Asked] | None = None,
        split: Split = "test",
        resamples: int = RESAMPLES,
    ) -> pd.DataFrame:
        """Return every metric by client and group, with counts and 95 % intervals.

        It is of the model that each client would really use, from :attr:`predictions`; where these
        were cut, of the examples that are there. See :func:`fedparity.metrics.group_table`.
        Of a real federation it is what the sites told: the metrics of the run, and of groups of few
        examples their number alone.

        Parameters
        ----------
        kind
            The kind of group, such as ``sex``: one of :attr:`groups`.
        metrics
            By default those of the run that have a name.
        split
            ``validation`` or ``test``.
        resamples
            Bootstrap samples of each metric's interval; 0 leaves these intervals out.
        """
        if kind not in self.groups:
            raise unknown("kind of group", kind, self.groups)
        if not self._has("predictions"):
            return self._told_groups(kind, metrics, split)
        known = [name for name in self.frame.metrics if name in METRICS]
        rows = self.predictions[self.predictions["split"] == split]
        used = "personal" if (rows["model"] == "personal").any() else "global"
        return group_table(
            rows[rows["model"] == used],
            kind,
            read_metrics(known if metrics is None else metrics),
            accuracy=self.record.get("predicts") == "classes",
            resamples=resamples,
        )

    def _told_groups(
        self, kind: str, metrics: Iterable[Asked] | None, split: Split
    ) -> pd.DataFrame:
        """Return what the sites told of a kind of group."""
        rows = self._large("groups", "")
        rows = rows[(rows["kind"] == kind) & (rows["split"] == split)]
        told = [str(name)[:-4] for name in rows if str(name).endswith("_low")]
        beside = [name for name in told if name not in ("loss", "accuracy")]
        asked = beside if metrics is None else [m.name for m in read_metrics(metrics)]
        for name in set(asked).difference(beside):
            raise unknown("metric told by the sites", name, beside)
        shown = [name for name in told if name not in beside or name in asked]
        columns = [name + end for name in shown for end in ("", "_low", "_high")]
        found = rows[["client", "group", "n", *columns]].rename(columns={"group": kind})
        return found.reset_index(drop=True)

    def certainty(
        self,
        *,
        metrics: Iterable[Asked] | None = None,
        split: Split = "test",
        confidence: float = CONFIDENCE,
        simultaneous: bool = False,
        limit: float = 0.0,
        adjusted: bool = True,
        resamples: int = MANY,
    ) -> pd.DataFrame:
        """Return one row a client: its numbers with intervals, and whether it gains or pays.

        Column ``verdict`` is ``certainly gains``, ``certainly pays`` or ``cannot be told``. It is
        of the model that each client would really use, from :attr:`predictions`; where these were
        cut, of the examples that are there. See :func:`fedparity.certainty.client_certainty`, which
        has the parameters.
        """
        known = [name for name in self.frame.metrics if name in METRICS]
        found = client_certainty(
            self.predictions,
            lstar=self.given_lstar(split),
            split=split,
            metrics=read_metrics(known if metrics is None else metrics),
            accuracy=self.record.get("predicts") == "classes",
            confidence=confidence,
            simultaneous=simultaneous,
            limit=limit,
            adjusted=adjusted,
            resamples=resamples,
        )
        return found.drop(columns=["gap_p", "verdict"], errors="ignore") if self.alone else found

    @property
    def verdicts(self) -> pd.DataFrame:
        """Who certainly gains and pays: ``client``, ``gap_low``, ``gap_high``, ``verdict``.

        It is of the test examples, at 95 %. It has no row where nothing can be said: where each
        client trained alone, nobody has an L*, or no predictions were kept.
        """
        if self._verdicts is None:
            columns = ["client", "gap_low", "gap_high", "verdict"]
            known = not self.alone and self.given_lstar("test") is not None and self.has_tests()
            found = (
                client_certainty(self.predictions, lstar=self.given_lstar("test")) if known else ()
            )
            self._verdicts = pd.DataFrame(found, columns=columns)
        return self._verdicts

    def has_tests(self) -> bool:
        """Tell whether predictions of test examples are kept."""
        return self._has("predictions") and bool((self.predictions["split"] == "test").any())

    def _has(self, name: str) -> bool:
        """Tell whether a large table is kept."""
        if self.path is None:
            return name in self._tables
        return (RunDir(self.path).path / f"{name}.parquet").exists()

    def given_lstar(self, split: Split) -> dict[str, float] | None:
        """Return L* by client, where somebody has one."""
        column = f"{split}_lstar"
        if column not in self.clients or self.clients[column].isna().all():
            return None
        named = zip(self.clients["client"], self.clients[column], strict=True)
        return {str(client): float(value) for client, value in named}

    @property
    def lstar_curves(self) -> pd.DataFrame:
        """The loss that decided over L*, by ``client`` and ``round`` of training alone."""
        return self._large("lstar_curves", "L* was given, not wanted, or computed at sites")

    @property
    def aggregation_weights(self) -> pd.DataFrame:
        """By what each client counted: columns ``round``, ``client`` and ``weight``.

        Empty where the server does not average by weights. Of runs with very many replies, some
        rounds are kept.
        """
        rows = self._told[(self._told["model"] == SERVER) & (self._told["metric"] == "weight")]
        found = rows[["round", "client", "value"]].rename(columns={"value": "weight"})
        return found.reset_index(drop=True)

    @property
    def told(self) -> pd.DataFrame:
        """What clients reported and parts told, round by round.

        Columns ``round``, ``part``, ``client`` (empty where the server tells), ``number`` and
        ``value``: training losses where a part reads them, and whatever else is one number.
        """
        rows = self._told[self._told["metric"] != "weight"]
        found = rows[["round", "model", "client", "metric", "value"]]
        names = {"model": "part", "metric": "number"}
        return found.rename(columns=names).reset_index(drop=True)

    def _large(self, name: str, missing: str) -> pd.DataFrame:
        if name not in self._tables:
            folder = RunDir(self.path) if self.path is not None else None
            if folder is None or not (file := folder.path / f"{name}.parquet").exists():
                raise InputError(f"this result has no {name}: {missing}")
            self._tables[name] = folder.read_table(file)
        return self._tables[name]

    def warn_of_levelling_down(self, reference: Result) -> None:
        """Warn if gaps were made more equal by harming the best client and helping no worst one."""
        if (why := self.incomparable(reference)) is not None:
            warnings.warn(why, stacklevel=3)
            return
        levelling = self.frame.compare(reference.frame).levelling
        if levelling is not None and levelling.verdict == "levelling_down":
            warnings.warn(
                f"'{self.settings['algorithm']}' levels down against "
                f"'{reference.settings['algorithm']}': the largest gap changes by "
                f"{levelling.dW:+.3g} and the smallest by {levelling.dB:+.3g}"
                + (f"; {self.softens}" if self.softens else ""),
                stacklevel=3,
            )

    def incomparable(self, reference: Result) -> str | None:
        """Return why levelling down cannot be judged against a reference, or None."""
        if not isinstance(reference, Result):
            raise InputError("reference is no result: give that of a run of FedAvg")
        if reference.rounds != self.rounds:
            return (
                f"the reference ran {reference.rounds} rounds and this run {self.rounds}: "
                "levelling down is judged at the same round budget"
            )
        if reference.diverged or self.diverged:
            which = "the reference" if reference.diverged else "this run"
            return f"{which} diverged: levelling down cannot be judged"
        theirs, ours = reference.weights, self.weights
        if theirs and ours and theirs != ours:
            return (
                f"the reference has {theirs} weights and this run {ours} ones: levelling down is "
                f"judged under the same weights; run the reference with weighting='{ours}'"
            )
        return None

    @classmethod
    @checked
    def load(cls, path: str | Path) -> Result:
        """Read the result of a finished run from its directory."""
        folder = RunDir(path)
        settings = folder.settings()
        if not folder.clients.exists():
            raise InputError(f"the run in {path} is not finished: fedparity resume {path}")
        folder.checksums.warn_if_absent()
        history = folder.read_table(folder.history)
        rounds = int(history["round"].max()) if len(history) else 0
        clients = folder.read_table(folder.clients)
        result = cls(clients, history, settings, rounds, path=folder.path)
        if folder.unseen.exists():
            result.unseen = folder.read_table(folder.unseen)
        return result
