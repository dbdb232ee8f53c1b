"""What clients keep, and the checkpoint on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedparity.clients.store import ClientStore
from fedparity.errors import DamagedError, FedparityError, InputError
from fedparity.learning.layout import Layout
from fedparity.method import Part
from fedparity.method.algorithm import Algorithm
from fedparity.method.messages import Server
from fedparity.records.state import RunState, checkpoints

X = torch.tensor([1.0, 2.0, 3.0])


class Keeper(Part):
    """Keeps two tensors on every client."""

    name = "keeper"

    def init_client(self, x: Tensor, layout: Layout) -> dict[str, Tensor]:
        return {"own": x, "count": torch.zeros((), dtype=torch.int64)}


def store(population: int = 1000) -> ClientStore:
    layout = Layout(nn.Linear(3, 1, bias=False))
    return ClientStore(Algorithm([Keeper()]), layout, X, torch.zeros(0), population)


def ids(*clients: int):
    return np.asarray(clients, dtype=np.int64)


def kept(*rows: float) -> dict[str, dict[str, Tensor]]:
    own = torch.tensor(rows)[:, None] * torch.ones(3)
    return {"keeper": {"own": own, "count": torch.arange(1, len(rows) + 1)}}


def test_a_client_never_met_has_the_initial_state():
    found = store().gather(ids(3, 999))["keeper"]
    assert torch.equal(found["own"], torch.stack([X, X]))
    assert found["count"].tolist() == [0, 0]


def test_what_is_kept_is_found_again_in_any_order():
    clients = store()
    clients.scatter(ids(7, 2, 500), kept(7.0, 2.0, 5.0))
    clients.scatter(ids(2, 9), kept(-2.0, 9.0))
    found = clients.gather(ids(9, 500, 3, 2, 7))["keeper"]
    assert found["own"][:, 0].tolist() == [9.0, 5.0, 1.0, -2.0, 7.0]
    assert found["count"].tolist() == [2, 3, 0, 1, 1]


def test_what_is_gathered_is_a_copy():
    clients = store()
    clients.gather(ids(0))["keeper"]["own"].zero_()
    assert torch.equal(clients.gather(ids(0))["keeper"]["own"][0], X)


def test_memory_grows_with_the_clients_met_not_with_the_population():
    clients = store(1_000_000)
    clients.scatter(ids(999_999, 4), kept(1.0, 2.0))
    assert clients.slabs["keeper"]["own"].shape == (2, 3)


def test_restoring_gives_the_same_rows():
    clients, again = store(), store()
    clients.scatter(ids(7, 2, 500), kept(7.0, 2.0, 5.0))
    again.restore(clients.tensors())
    everyone = np.arange(1000)
    for key in ("own", "count"):
        mine, theirs = (s.gather(everyone)["keeper"][key] for s in (clients, again))
        assert torch.equal(mine, theirs)
        assert mine.dtype == theirs.dtype


def test_state_under_another_name_than_at_the_start_is_an_error():
    with pytest.raises(FedparityError, match="keeper"):
        store().scatter(ids(1), {"keeper": {"other": torch.zeros(1, 3)}})


def state(round: int = 0, value: float = 0.0, **identity: object) -> RunState:
    server = Server(X + value, torch.zeros(0), {"keeper": {"v": X * value}})
    known = {"algorithm": "keeper", **identity}
    return RunState(round, server, store(10), identity=known)


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    written = state(5, 2.0)
    written.best_value, written.best_round, written.best_x = 0.1, 3, X
    written.best_buffers, written.patience, written.stop_value = torch.zeros(0), 2, 0.25
    written.store.scatter(ids(4), kept(4.0))
    written.save(tmp_path / "checkpoint")
    found = state()
    found.load(tmp_path / "checkpoint")
    assert torch.equal(found.server.x, X + 2)
    assert torch.equal(found.server.parts["keeper"]["v"], X * 2)
    assert (found.round, found.patience, found.best_round) == (5, 2, 3)
    assert (found.best_value, found.stop_value) == (0.1, 0.25)
    assert found.best_x is not None
    assert torch.equal(found.best_x, X)
    assert found.store.gather(ids(4))["keeper"]["own"][0].tolist() == [4.0, 4.0, 4.0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint"]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("kill_at", [1, 2])
def test_killed_between_renames_a_whole_checkpoint_is_found(tmp_path, monkeypatch, kill_at):
    folder, renames = tmp_path / "checkpoint", 0
    rename = Path.rename

    def dying(self: Path, target: Path) -> Path:
        nonlocal renames
        renames += 1
        if renames == kill_at:
            raise Killed
        return rename(self, target)

    state(1, 1.0).save(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying)
        with pytest.raises(Killed):
            state(2, 2.0).save(folder)
    assert rounds(folder) == [1]

    # Killed a second time, before the new checkpoint takes its place, the old one is still there.
    renames = kill_at - 1
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying)
        with pytest.raises(Killed):
            state(3, 3.0).save(folder)
    assert rounds(folder) == [1]
    state(4, 4.0).save(folder)
    assert rounds(folder) == [4, 1]


def rounds(folder: Path) -> list[int]:
    """Return the rounds of the checkpoints there are, the newest first."""
    found = []
    for one in checkpoints(folder):
        read = state()
        read.load(one)
        found.append(read.round)
    return found


def test_the_last_two_checkpoints_are_kept(tmp_path):
    for round in (1, 2, 3):
        state(round).save(tmp_path / "checkpoint")
    assert rounds(tmp_path / "checkpoint") == [3, 2]


def test_another_algorithm_is_refused_with_the_reason(tmp_path):
    state(1).save(tmp_path / "checkpoint")
    with pytest.raises(InputError, match="its algorithm is 'keeper', here it is 'other'"):
        state(algorithm="other").load(tmp_path / "checkpoint")


def test_another_schema_is_refused(tmp_path):
    state(1).save(tmp_path / "checkpoint")
    other = state()
    other.server = other.server._replace(parts={"keeper": {"v": torch.zeros(4)}})
    with pytest.raises(InputError, match="schema"):
        other.load(tmp_path / "checkpoint")


@pytest.mark.parametrize("file", ["state.json", "state.safetensors", "checksums.json"])
def test_a_damaged_checkpoint_is_refused_with_its_place(tmp_path, file):
    state(1).save(tmp_path / "checkpoint")
    place = tmp_path / "checkpoint" / file
    content = bytearray(place.read_bytes())
    content[-30] ^= 1
    place.write_bytes(content)
    with pytest.raises(DamagedError, match=r"checkpoint/.* is damaged"):
        state().load(tmp_path / "checkpoint")
    place.unlink()
    with pytest.raises(DamagedError, match=f"{file} is missing"):
        state().load(tmp_path / "checkpoint")
