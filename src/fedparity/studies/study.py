"""A study: a grid of runs, each done once, and their numbers as one table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedparity import workers as machine
from fedparity.arguments import named
from fedparity.data import Federation
from fedparity.errors import FedparityError, InputError, unknown
from fedparity.figures import Labelled
from fedparity.figures.charts import Over
from fedparity.imports import Allowed, texts_in
from fedparity.metrics.summaries import Split
from fedparity.records.result import Result
from fedparity.studies import address, missing
from fedparity.studies.cluster import Cluster
from fedparity.studies.file import OWN, read
from fedparity.studies.grid import Cell, cells, checked, labelled, put, seeds_of
from fedparity.studies.places import RUNS, STUDIES, file_of, home_of, name_of, place
from fedparity.studies.plot import Plot, finished
from fedparity.studies.pool import Pool
from fedparity.studies.runs import Run
from fedparity.studies.schedule import Board, Hands, Watch, work_off
from fedparity.studies.significance import Significance
from fedparity.studies.speed import reaching
from fedparity.studies.table import Table, tabled
from fedparity.studies.work import Outcome

PLACES = ("ray",)
"""Where runs may be done beside this machine's own processes."""


@named
class Study:
    """Algorithms under a grid of settings, over seeds.

    A run's directory is named by a digest of its settings, so that no setting is run twice, whoever
    asks for it: a study can be stopped at any time, run again, and made larger.

    Parameters
    ----------
    settings
        What all runs share, as in an experiment file: ``{"data": "digits", "model": "linear"}``.
    algorithms
        A list of algorithms, or by the label that tables show each under.
    out
        The directory of the study; several studies of unlike names may share one.
    grid
        Values by key: ``{"solver.lr": [0.01, 0.1], "model": ["linear", "mlp"]}``. Every combination
        is run. ``data.seed`` is the seed of the dealing and of label noise; without it each run's
        data are dealt by its own seed.
    seeds
        How many seeds, from 0, or a list of them.
    federation
        Data of your own in place of ``settings["data"]``; its runs are done in this process.
    data_dir
        Where datasets are.
    allowed
        The code that the settings may name; by default what they name themselves.
    name
        Of the study's file and table in the directory.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        algorithms: Mapping[str, str] | Sequence[str],
        out: str | Path,
        *,
        grid: Mapping[str, Any] | None = None,
        seeds: int | Sequence[int] = 5,
        federation: Federation | None = None,
        data_dir: str | Path | None = None,
        allowed: Allowed | None = None,
        name: str = "study",
    ) -> None:
        if not isinstance(settings, Mapping) or not isinstance(out, str | Path):
            raise InputError("a study is of settings, algorithms and a directory: see Study.load")
        self.settings, self.out, self.name = dict(settings), Path(out), name_of(name)
        self.algorithms, self.seeds = labelled(algorithms), seeds_of(seeds)
        self.grid = checked(grid or {})
        self.federation, self.data_dir = federation, None if data_dir is None else str(data_dir)
        if allowed is None:
            allowed = Allowed.by(named=[*self._texts()])
        self.allowed = allowed
        self.runs = tuple(self._planned())

    def _texts(self) -> Iterator[str]:
        """Yield the texts of the study that may name code."""
        base = {**self.settings, "algorithms": list(self.algorithms.values())}
        yield from texts_in(base)
        for key, values in self.grid.items():
            for value in values:
                yield from texts_in(put({}, key, value))

    def _planned(self) -> Iterator[Run]:
        fingerprint = None if self.federation is None else self.federation.fingerprint
        addresses, seen = address.Addresses(self.allowed, fingerprint), dict[str, Cell]()
        if "data" in self.settings:  # with the digests of tables, so that the file finds the same
            self.settings = addresses.known(self.settings)
        if "data" in self.grid:
            each = [addresses.known({"data": data})["data"] for data in self.grid["data"]]
            self.grid = {**self.grid, "data": each}
        for cell in cells(self.settings, self.algorithms, self.grid, self.seeds):
            known = addresses.known(cell.settings)
            complete = addresses.complete(known)
            found = address.address(complete)
            if found in seen and seen[found].label != cell.label:
                both = f"'{seen[found].label}' and '{cell.label}'"
                raise InputError(f"{both} are the same algorithm: leave one out")
            if found in seen:
                both = f"{dict(seen[found].chosen)} and {dict(cell.chosen)}"
                raise InputError(f"the grid asks twice for one run ({both}): leave one out")
            seen[found] = cell
            directory = self.out / RUNS / found
            cell = Cell(cell.label, cell.chosen, cell.seed, known)
            yield Run(cell, found, address.alone(complete), directory)

    @classmethod
    def load(
        cls,
        path: str | Path,
        out: str | Path | None = None,
        *,
        data_dir: str | Path | None = None,
        allow_import: str | Iterable[str] = (),
    ) -> Study:
        """Return the study of a file, or of a directory that holds one.

        ``out`` is by default that directory, or for a file ``runs/NAME``. The file may name code
        of the packages ``allow_import`` only, and tables beside it or in the data folder.
        """
        file = file_of(Path(path))
        allowed = Allowed.by(allow_import)
        told = read(file, data_dir, allowed)
        return cls(
            {key: value for key, value in told.items() if key not in OWN},
            told["algorithms"],
            out or home_of(file),
            **{key: told[key] for key in ("grid", "seeds") if key in told},
            data_dir=data_dir,
            allowed=allowed,
            name=file.stem,
        )

    @property
    def file(self) -> Path:
        """The study's own file in its directory, from which it goes on."""
        return self.out / STUDIES / f"{self.name}.yaml"

    def describe(self) -> dict[str, Any]:
        """Return the study as the plain values of its file."""
        return {
            **self.settings,
            "algorithms": self.algorithms,
            "grid": self.grid,
            "seeds": list(self.seeds),
        }

    def run(
        self,
        workers: int | None = None,
        *,
        again: str | Collection[str] = (),
        on: str | None = None,
        watch: Watch | None = None,
    ) -> Study:
        """Do the runs that are missing, side by side, and return the study.

        Parameters
        ----------
        workers
            Processes; by default one a core.
        again
            Do runs of these states again: ``failed``, ``damaged``. What a damaged run left is put
            aside, not removed.
        on
            ``ray`` sends the runs to a Ray cluster (``fedparity[ray]``): the one of
            ``RAY_ADDRESS``, or a local one. Its machines have fedparity, the data and the study's
            directory under the same paths.
        watch
            Called with the :class:`~fedparity.studies.schedule.Board` whenever something happens.

        Raises
        ------
        FedparityError
            When the disk is full; what is done is intact.
        """
        again = (again,) if isinstance(again, str) else again
        for state in again:
            if state not in missing.AGAIN:
                raise unknown("state to be run again", state, missing.AGAIN)
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}: at least 1")
        if on not in (None, *PLACES):
            raise unknown("place of runs", str(on), PLACES)
        if on is not None and self.federation is not None:
            raise InputError("data that were made here stay in this process: leave out on=")
        for folder in (RUNS, STUDIES):
            (self.out / folder).mkdir(parents=True, exist_ok=True)
        self._write()
        tasks = missing.tasks(self.runs, again, self.data_dir, self.allowed)
        total = len({run.address for run in self.runs})
        board = Board(total, total - len(tasks))
        tell = watch or (lambda board: None)
        if self.federation is not None:
            full = missing.here(tasks, self.federation, board, tell)
        else:
            most = max(1, len(tasks))
            hands: Hands
            if on == "ray":
                hands = Cluster(workers, most)
            else:
                hands = Pool(min(workers or machine.cores(), most), self.out)
            full = work_off(tasks, hands, board, missing.ended, tell)
        if full is not None:
            raise FedparityError(
                f"the disk is full ({full.reason}): {board.done} of {total} runs are done and "
                "intact; make room and run the study again"
            )
        return self

    def _write(self) -> None:
        if self.federation is None:
            import yaml

            text = yaml.safe_dump(self.describe(), sort_keys=False, allow_unicode=True)
            place(self.file, text)

    def state(self, run: Run) -> Outcome:
        """Return what became of a run.

        ``done``, ``diverged``, ``failed`` or ``damaged``; or so far
        ``begun`` or ``waiting``.
        """
        return run.read()[0]

    def results(self) -> Iterator[tuple[Run, Result]]:
        """Yield every finished run with its result, those that diverged too."""
        for run in self.runs:
            result = run.read()[1]
            if result is not None:
                yield run, result

    def labelled(self, across_settings: bool = False) -> list[Labelled]:
        """Return the finished runs, without those that diverged, by their labels in figures.

        ``across_settings`` takes settings of the grid as repetitions of an algorithm.
        """
        return finished(self, across_settings)

    @property
    def plot(self) -> Plot:
        """Figures: curves, clients, frontier, payers and ranks (``fedparity[figures]``)."""
        return Plot(self)

    @property
    def significance(self) -> Significance:
        """Tests between algorithms: t and Wilcoxon, Friedman, McNemar."""
        return Significance(self)

    def table(
        self,
        metrics: Sequence[str] | None = None,
        *,
        reference: str | None = None,
        split: Split = "test",
        confidence: float = 0.95,
    ) -> Table:
        """Return mean and standard deviation over seeds, with marks of significance.

        Parameters
        ----------
        metrics
            Summaries of the clients, such as ``worst_accuracy``; by default the usual ones.
        reference
            The label of the algorithm that the others are tested against, seed by seed.
        split
            ``validation`` or ``test``.
        confidence
            Of intervals and marks, after Holm over all cells of a summary.
        """
        frame = next((result.frame for _, result in self.results()), None)
        if frame is None:
            raise InputError("the study has no finished run: run it first")
        return tabled(
            self.by_run(split),
            ("algorithm", *self.grid),
            frame.summaries,
            metrics=metrics,
            reference=reference,
            confidence=confidence,
        )

    def rounds_to_target(
        self,
        target: float,
        metric: str = "accuracy",
        *,
        over: Over = "mean",
        split: Split = "test",
        reference: str | None = None,
        stay: int = 1,
    ) -> pd.DataFrame:
        """Return how many rounds each algorithm needs to a target, mean and interval over seeds.

        Columns ``algorithm``, ``seeds``, ``reached`` (on how many of them), ``rounds`` with its
        95 % t interval, with a ``reference`` also ``speed_up`` (its rounds over one's own, seed by
        seed), and ``note``: there is no mean where the target is not reached on every seed.

        Parameters
        ----------
        target
            Such as 0.8 of ``accuracy``, in the unit of the history.
        over
            The ``mean`` over clients, or the ``worst`` of them.
        stay
            How many evaluations in a row must reach it.
        """
        return reaching(
            self.labelled(),
            target,
            metric=metric,
            over=over,
            split=split,
            reference=reference,
            stay=stay,
        )

    def by_run(self, split: Split = "test") -> pd.DataFrame:
        """Return one row a run.

        Columns ``algorithm``, the keys of the grid, ``seed``, ``data_seed``, ``state``, ``reason``,
        ``run`` (its directory), ``rounds`` and the summaries of its clients. A run without a
        result has empty summaries, and the reason why.
        """
        rows = []
        for run in self.runs:
            (state, reason), result = run.read()
            row = {
                "algorithm": run.cell.label,
                **run.cell.chosen,
                "seed": run.cell.seed,
                "data_seed": self._data_seed(run),
                "state": state,
                "reason": reason,
                "run": str(run.directory),
            }
            if result is not None:
                row |= {"rounds": result.rounds, **result.summary(split)}
            rows.append(row)
        return pd.DataFrame(rows)

    def _data_seed(self, run: Run) -> Any:
        data = run.cell.settings.get("data")
        found = data.get("seed") if isinstance(data, Mapping) else None
        return run.cell.seed if found is None and self.federation is None else found
