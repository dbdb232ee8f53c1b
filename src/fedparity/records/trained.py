"""The model that a run has trained, and what it says of new inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor, nn

from fedparity.arguments import checked
from fedparity.data.prepare import Preparation
from fedparity.errors import InputError, unknown
from fedparity.imports import Allowed
from fedparity.learning import tasks
from fedparity.learning.task import Factory, Task
from fedparity.records.model import load_model, load_personal, save_module, with_tensors
from fedparity.records.prediction import inputs_of, predicted, taking_what_was_given
from fedparity.records.rundir import RunDir
from fedparity.records.settings import prepared_again


class Trained:
    """What a result needs to give its model and to predict with it."""

    path: Path | None
    settings: dict[str, Any]
    clients: pd.DataFrame
    _module: nn.Module | None
    _personal: dict[str, Tensor]
    _task: Task | None
    _preparation: Preparation | None

    @property
    def record(self) -> dict[str, Any]:
        """What the run wrote down about itself."""
        found: dict[str, Any] = self.settings.get("record") or {}
        return found

    @property
    def alone(self) -> bool:
        """Whether each client trained alone, so that nobody gains or pays by joining."""
        return self.record.get("weights") == "none"

    @checked
    def model(
        self,
        client: str | None = None,
        *,
        which: Literal["best", "last"] = "best",
        factory: Factory | None = None,
        allow_import: str | Iterable[str] = (),
    ) -> nn.Module:
        """Return the trained module; it takes inputs of any floating point type, numpy's too.

        Parameters
        ----------
        client
            Whose own model, where clients have such; by default the shared one.
        which
            ``"best"`` is the model that was kept; ``"last"`` the one of the last round, which is
            another where ``keep`` names a summary.
        factory
            Makes the module of a run read from its directory, where that should not name it.
        allow_import
            Packages whose code the directory may name.
        """
        if client is not None:
            if which != "best":
                raise InputError("a client's own model is the one that was judged: leave out which")
            shared = self.model(factory=factory, allow_import=allow_import)
            own = with_tensors(shared, self._owned(), self._row(client))
            return taking_what_was_given(own)
        if which == "last" and "kept_round" in self.record:
            if self.path is None:
                raise InputError(
                    "the last model beside the best is kept in the run directory alone"
                )
            file = RunDir(self.path).last
            found = load_model(self.path, factory=factory, allow_import=allow_import, file=file)
            return taking_what_was_given(found)
        if self._module is None:
            if self.path is None:
                raise InputError("this result has no model")
            self._module = load_model(self.path, factory=factory, allow_import=allow_import)
        return taking_what_was_given(self._module)

    def _row(self, client: str) -> int:
        names = self.clients["client"].astype(str).tolist()
        if client not in names:
            raise unknown("client", client, names)
        return names.index(client)

    def _owned(self) -> dict[str, Tensor]:
        """Return the clients' own models, if they are kept."""
        if not self._personal and self.path is not None and RunDir(self.path).personal.exists():
            self._personal = load_personal(RunDir(self.path))
        if not self._personal:
            why = self.record.get("personal") or (
                "clients have none here, it was run with personal=False, or they are at sites"
            )
            raise InputError(f"this result has no models of clients: {why}")
        return self._personal

    @property
    def preparation(self) -> Preparation | None:
        """How the columns of a table become inputs, where the run was of a table.

        A transformer of your own, read from the run's directory, is only described: :meth:`predict`
        makes it again.
        """
        if self._preparation is None and self.path is not None:
            folder = RunDir(self.path)
            if folder.preparation.exists():
                content = folder.read(folder.preparation)
                self._preparation = Preparation.read(content, str(folder.preparation))
        return self._preparation

    @checked
    def predict_proba(
        self,
        x: Any,
        *,
        client: str | None = None,
        clients: Sequence[str] | None = None,
        preparation: Preparation | None = None,
        allow_import: str | Iterable[str] = (),
    ) -> pd.DataFrame:
        """Return the probability of each class, one column a class, by its name.

        See :meth:`predict` for the parameters.
        """
        said = self._said(x, client, clients, preparation, allow_import)
        if said.ndim != 2 or self.record.get("predicts") != "classes":
            raise InputError(f"a {self.settings['task']} has no probabilities of classes: predict")
        return pd.DataFrame(said, columns=self._classes(said.shape[1]))

    @checked
    def predict(
        self,
        x: Any,
        *,
        client: str | None = None,
        clients: Sequence[str] | None = None,
        preparation: Preparation | None = None,
        allow_import: str | Iterable[str] = (),
    ) -> npt.NDArray[Any]:
        """Return what the shared model says of new inputs: the likeliest class, or the value.

        Parameters
        ----------
        x
            A table with the columns trained on, whatever their order, where the run was of a table:
            it is prepared as they were. Otherwise an array ``[n, ...]`` of inputs.
        client
            Whose own model is asked, and whose rows these are; by default the shared model.
        clients
            The client of each row, where tables were prepared client by client.
        preparation
            Takes the place of the run's own: the federation's, where a transformer was given as an
            object that no import path makes again.
        allow_import
            Packages whose code the run directory may name.
        """
        said = self._said(x, client, clients, preparation, allow_import)
        if self.record.get("predicts") != "classes":
            return said
        found: npt.NDArray[Any] = np.asarray(self._classes(said.shape[1]))[said.argmax(1)]
        return found

    def _said(
        self,
        x: Any,
        client: str | None,
        clients: Sequence[str] | None,
        preparation: Preparation | None,
        allow_import: str | Iterable[str],
    ) -> npt.NDArray[Any]:
        if self.alone and client is None:
            raise InputError(
                "each client trained alone: there is no shared model to predict with: name a "
                "client, client='A' (--client A)"
            )
        if client is not None and clients is None and isinstance(x, pd.DataFrame):
            clients = [client] * len(x)
        prepared = self._prepared(allow_import) if preparation is None else preparation
        inputs = inputs_of(x, self.record, prepared, clients)
        if self._task is None:
            allowed = Allowed.by(allow_import)
            self._task = tasks.read(str(self.settings["task"]), "linear", allowed)
        return predicted(self.model(client, allow_import=allow_import), self._task, inputs)

    def _prepared(self, allow_import: str | Iterable[str]) -> Preparation | None:
        """Return the preparation; code of the user's is made and fitted again."""
        found = self.preparation
        if found is not None and found.own is not None and found.own.fitted is None:
            assert self.path is not None
            allowed = Allowed.by(allow_import)
            found = self._preparation = prepared_again(self.settings, found, self.path, allowed)
        return found

    def _classes(self, count: int) -> list[Any]:
        """Return the names of the classes, or their numbers where they had none."""
        return list(self.record.get("classes") or range(count))

    @checked
    def save_model(self, file: str | Path) -> None:
        """Write the module's plain ``state_dict`` as safetensors."""
        save_module(self.model(), Path(file))
