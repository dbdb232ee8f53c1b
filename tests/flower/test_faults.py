"""Replies get lost, nodes and servers die, data lie: the run says so and stays right."""

from __future__ import annotations

import math
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, Error, Message
from inprocess import Deployment, array, spoiled, vector

from fedparity.errors import FedparityError
from fedparity.flower.agreement import agreed
from fedparity.flower.roster import ATTEMPTS, Roster
from fedparity.imports import NOTHING
from fedparity.run.file import experiment
from fedparity.testing.bench import Bench

SCAFFOLD = {
    "algorithm": "scaffold",
    "weighting": "uniform",
    "lstar": "none",
    "rounds": 6,
    "evaluate_every": 6,
}
D = 51
"""Parameters of the model."""


def lossy(share: float = 0.3, seed: int = 3):
    """Lose replies to training after the client has computed them."""
    rng = np.random.default_rng(seed)

    def fault(client, asked, reply):
        lost = asked.metadata.message_type == "train" and rng.random() < share
        return None if lost else reply

    return fault


def variates(deployment: Deployment, newest: bool = False) -> torch.Tensor:
    """Return the clients' variates after the round that counts, or after the last they made."""
    received, found = deployment.checkpoint()["received"], []
    for place, client in enumerate(deployment.federation.names):
        (file,) = (deployment.folder / "sites" / f"client-{client}").glob("*.safetensors")
        states = load_file(file)
        made = max(int(name.split("/")[0]) for name in states)
        found.append(states[f"{made if newest else int(received[place])}/scaffold/c"])
    return torch.stack(found)


def test_lost_replies_leave_the_variates_of_server_and_clients_in_step(tmp_path):
    deployment = Deployment(tmp_path, SCAFFOLD)
    deployment.run(fault=lossy())
    server = deployment.checkpoint()["server/scaffold/c"]
    torch.testing.assert_close(variates(deployment).mean(0), server, atol=1e-14, rtol=0)
    # A client that took every reply for received would have drifted away:
    assert (variates(deployment, newest=True).mean(0) - server).abs().max() > 1e-4


def test_a_lost_reply_is_a_client_that_did_not_answer(tmp_path):
    deployment = Deployment(tmp_path, SCAFFOLD)
    deployment.run(fault=lossy())
    made = experiment({**deployment.settings, "engine": "loop"}, federation=deployment.federation)
    bench, names = Bench(made), deployment.federation.names
    failed = [line["failed"] for line in deployment.log()]
    for absent in failed:
        bench.advance([place for place, name in enumerate(names) if name not in absent])
    assert torch.equal(bench.server.x, deployment.checkpoint()["x"])
    assert {why for absent in failed for why in absent.values()} == {"no answer within 600 s"}


def test_a_node_that_starts_again_finds_its_state_on_disk(tmp_path):
    deployment = Deployment(tmp_path, SCAFFOLD)

    def forget(client, asked, reply):
        deployment.grid.restart(client)
        return reply

    assert torch.equal(vector(deployment.run(fault=forget)), vector(deployment.simulate()))


def test_a_client_whose_state_is_lost_is_named_and_the_others_go_on(tmp_path):
    deployment = Deployment(tmp_path, SCAFFOLD)

    def burn(client, asked, reply):
        if client == "1" and asked.metadata.group_id == "2":
            deployment.grid.restart("1")
            shutil.rmtree(tmp_path / "sites" / "client-1")
        return reply

    deployment.run(fault=burn)
    rounds = deployment.log()
    assert [sorted(line["failed"]) for line in rounds[:6]] == [[], [], ["1"], ["1"], ["1"], ["1"]]
    assert "its state after round 2 is lost" in rounds[2]["failed"]["1"]


class Killed(BaseException):
    """The end of a server process."""


@pytest.mark.parametrize("last", [5, 9, 10, 12, 15, 17, 21])
def test_a_killed_server_goes_on_where_it_was(last, tmp_path):
    settings = {**SCAFFOLD, "rounds": 3, "evaluate_every": 1}
    deployment = Deployment(tmp_path, settings)

    def kill(client, asked, reply):
        if len(deployment.grid.sent) == last:
            raise Killed
        return reply

    with pytest.raises(Killed):
        deployment.run(fault=kill)
    for client in deployment.federation.names:  # another Flower run: the nodes' memory is new
        deployment.grid.restart(client)
    result = deployment.run(resume=True, fault=lambda client, asked, reply: reply)
    whole = deployment.simulate()
    assert torch.equal(vector(result), vector(whole))
    assert result.history.equals(whole.history)
    assert [line["round"] for line in deployment.log()] == [1, 2, 3]


def test_a_run_is_resumed_without_a_node_that_is_gone(tmp_path):
    deployment = Deployment(tmp_path, {**SCAFFOLD, "rounds": 2})
    deployment.run()
    deployment.settings["rounds"] = 4
    deployment.grid.app = Deployment(tmp_path, deployment.settings).grid.app
    deployment.grid.offline.add("2")
    assert deployment.run(resume=True).rounds == 4
    assert [list(line["failed"]) for line in deployment.log()[:4]] == [[], [], ["2"], ["2"]]


NAN = torch.full((D,), math.nan, dtype=torch.float64)
ONES = torch.ones(D, dtype=torch.float64)


def headed(text: bytes) -> Array:
    """Return an array of one value per parameter with this header before its bytes."""
    header = text.ljust(117) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8 * D)
    return Array("float64", (D,), "numpy.ndarray", data)


@pytest.mark.parametrize(
    ("record", "name", "value", "told"),
    [
        ("vectors", "delta", headed(b"{1: 2, 'descr': 3}"), "'delta' is not an array"),
        ("vectors", "delta", headed(b"(((("), "'delta' is not an array"),
        ("vectors", "delta", headed(b"{'descr': (), 'x': (51,)}"), "'delta' is not an array"),
        (
            "vectors",
            "delta",
            headed(b"{'descr': (), 'fortran_order': False, 'shape': (51,)}"),
            "'delta' is not an array",
        ),
        ("vectors", "delta", array(NAN), "not finite"),
        ("vectors", "delta", array(ONES / 0), "not finite"),
        ("vectors", "delta", array(ONES[1:]), "float64[50], not float64[51]"),
        ("vectors", "delta", array(ONES.float()), "float32[51], not float64[51]"),
        ("vectors", "delta", array(torch.ones(10**5)), "bytes where at most"),
        ("vectors", "delta", None, "leaves out 'delta'"),
        ("vectors", "x", array(ONES), "'x', which nobody asked for"),
        ("vectors", "x" * 9999, array(ONES[:1]), "xxx, which nobody asked for"),
        ("reports", "qffl/loss", array(torch.tensor(-1.0).double()), "a loss is not negative"),
        ("reports", "qffl/loss", array(torch.tensor(1e9).double()), "no loss is that large"),
        ("reports", "qffl/loss", array(torch.tensor(math.nan).double()), "not finite"),
        ("reports", "afl/loss", array(torch.tensor(1.0).double()), "which nobody asked for"),
    ],
)
def test_a_reply_that_is_wrong_is_rejected_and_the_round_goes_on(
    record, name, value, told, tmp_path
):
    settings = {"algorithm": "qffl", "lstar": "none", "rounds": 1}
    deployment = Deployment(tmp_path, settings)
    result = deployment.run(fault=spoiled("1", "train", record, name, value))
    (line,) = deployment.log()
    assert line["answered"] == 3
    assert list(line["failed"]) == ["1"]
    assert line["failed"]["1"].startswith("its reply is rejected: ")
    assert told in line["failed"]["1"]
    assert len(line["failed"]["1"]) < 200
    assert deployment.checkpoint()["received"].tolist() == [1, 0, 1, 1]
    assert bool(vector(result).isfinite().all())


@pytest.mark.parametrize(
    ("algorithm", "name", "value", "told"),
    [
        ("eagle", "gap", -1e3, "plus its L.* a loss is not negative"),
        ("eagle", "gap", 1e7, "no loss is that large"),
        ("eagle", "gap", 1e300, "no report is that large"),
        ("prac_fedeba_plus", "before", -1.0, "'prac_fedeba_plus/before' is -1: a loss is not neg"),
        ("prac_fedeba_plus", "after", 1e9, "no loss is that large"),
        ("qffl", "norm2", -1.0, "a norm is not negative"),
        ("qffl", "norm2", 1e20, "no report is that large"),
    ],
)
def test_a_number_that_no_part_reports_is_rejected(algorithm, name, value, told, tmp_path):
    lstar = "best_validation(rounds=2)" if algorithm == "eagle" else "none"
    deployment = Deployment(tmp_path, {"algorithm": algorithm, "lstar": lstar, "rounds": 1})
    lie = array(torch.tensor(value, dtype=torch.float64))
    deployment.run(fault=spoiled("1", "train", "reports", f"{algorithm}/{name}", lie))
    (line,) = [line for line in deployment.log() if line["round"] == 1]
    assert list(line["failed"]) == ["1"]
    assert re.search(told, line["failed"]["1"])


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("global/test/loss", -0.1, "a loss is not negative"),
        ("global/test/loss", math.inf, "is inf"),
        ("global/test/accuracy", 1.5, "not a share"),
        ("global/test/loss", None, "leaves out 'global/test/loss'"),
        ("personal/test/loss", 0.1, "which nobody asked for"),
        ("global/test/loss", [1.0], "lists where single numbers belong"),
    ],
)
def test_an_evaluation_that_is_wrong_is_left_out_and_told(name, value, told, tmp_path):
    deployment = Deployment(tmp_path, {"lstar": "none", "rounds": 1})
    result = deployment.run(fault=spoiled("1", "evaluate", "numbers", name, value))
    unknown = result.history[result.history["value"].isna()]
    assert set(unknown["client"]) == {"1"}
    assert result.clients["test_loss"].isna().tolist() == [False, True, True, False]
    assert result.summary()["clients_without_test"] == 2  # the third has no example at all
    assert math.isfinite(result.summary()["mean_loss"])
    lines = [line for line in deployment.log() if "evaluation" in line]
    assert [list(line["failed"]) for line in lines] == [["1"], ["1"]]
    assert told in lines[0]["failed"]["1"]
    assert (tmp_path / "run" / "report.html").exists()


def test_a_site_whose_code_fails_is_named_with_its_reason(tmp_path):
    deployment = Deployment(tmp_path, {"lstar": "none", "rounds": 1, "algorithm": "prox"})

    errors = {"1": Error(2, "the disk is full"), "3": Error(3, "it may have expired")}

    def fault(client, asked, reply):
        if client not in errors or asked.metadata.message_type != "train":
            return reply
        return Message(errors[client], reply_to=asked)

    deployment.run(fault=fault)
    assert deployment.log()[0]["failed"] == {
        "1": "its node failed: the disk is full (Flower's code 2)",
        "3": "no answer within 600 s",
    }


def test_a_round_with_too_few_replies_changes_nothing(tmp_path):
    deployment = Deployment(tmp_path, {**SCAFFOLD, "rounds": 1})
    result = deployment.run(
        min_replies=4,
        fault=lambda client, asked, reply: (
            None if client == "1" and asked.metadata.message_type == "train" else reply
        ),
    )
    start = experiment(deployment.settings, federation=deployment.federation).setup
    assert torch.equal(vector(result), start.layout.read(start.module)[0])
    assert deployment.checkpoint()["received"].tolist() == [0, 0, 0, 0]
    (line,) = deployment.log()
    assert (line["asked"], line["answered"], line["skipped"]) == (4, 3, True)
    assert list(line["failed"]) == ["1"]


def test_a_dead_federation_ends_with_its_reason(tmp_path):
    deployment = Deployment(tmp_path, {"lstar": "none", "rounds": 30, "evaluate_every": 30})

    def leave(client, asked, reply):
        if asked.metadata.group_id == "1":
            deployment.grid.offline.update(deployment.federation.names)
        return reply

    with pytest.raises(FedparityError, match=r"20 rounds in a row .* no node of it is connected"):
        deployment.run(fault=leave)


def test_a_node_that_leaves_is_recorded_and_used_again_when_it_is_back(tmp_path):
    deployment = Deployment(tmp_path, {**SCAFFOLD, "evaluate_every": 2})
    grid = deployment.grid
    (old,) = (n for n, c in grid.nodes.items() if c.node_config["client-id"] == "1")

    def leave_and_return(client, asked, reply):
        turn = (asked.metadata.message_type, asked.metadata.group_id)
        if turn == ("train", "1") and client == "3":
            grid.offline.add("1")
        elif turn == ("train", "3") and old in grid.nodes:
            del grid.nodes[old]
            grid.offline.clear()
            grid.connect("1")  # another node id, an empty memory, the same disk
        return reply

    result = deployment.run(fault=leave_and_return)
    rounds = [line for line in deployment.log() if "lr" in line]
    assert [list(line["failed"]) for line in rounds] == [[], ["1"], ["1"], [], [], []]
    assert rounds[1]["failed"]["1"] == "no node of it is connected"
    at = result.history.query("split == 'test' and metric == 'loss' and client == '1'")
    assert at.set_index("round")["value"].isna().to_dict() == {
        0: False,
        2: True,
        4: False,
        6: False,
    }
    server = deployment.checkpoint()["server/scaffold/c"]
    torch.testing.assert_close(variates(deployment).mean(0), server, atol=1e-14, rtol=0)


def test_a_second_node_of_a_client_waits_until_the_first_is_silent(tmp_path):
    deployment = Deployment(tmp_path, SCAFFOLD)
    grid, used = deployment.grid, []
    (old,) = (n for n, c in grid.nodes.items() if c.node_config["client-id"] == "1")

    def double(client, asked, reply):
        round, node = asked.metadata.group_id, asked.metadata.dst_node_id
        if round == "1" and client == "1":
            grid.connect("1")
        if client == "1" and asked.metadata.message_type == "train":
            used.append("old" if node == old else "new")
        return None if round == "4" and node == old else reply

    deployment.run(fault=double)
    assert used == ["old"] * 4 + ["new"] * 2


def test_a_message_for_another_client_or_other_settings_is_refused_by_the_site(tmp_path):
    deployment = Deployment(tmp_path, {**SCAFFOLD, "rounds": 2})
    inner = deployment.grid.app

    def exchanged(message, context):
        if message.metadata.message_type == "train":
            words = message.content["words"]
            if context.node_config["client-id"] == "1":
                words["client"] = "2"
            if context.node_config["client-id"] == "3":
                words["agreed"] = "something else"
        return inner(message, context)

    deployment.grid.app = exchanged
    deployment.run()
    failed = deployment.log()[0]["failed"]
    assert failed == {
        "1": "its site failed: it is for client '2', this is '1'",
        "3": "its site failed: its settings are not those that this site agreed on",
    }


def test_a_refused_node_that_left_is_heard_again_when_it_is_back(tmp_path):
    deployment = Deployment(tmp_path, SCAFFOLD)
    grid = deployment.grid
    roster = Roster(grid, deployment.federation.names, agreed(deployment.settings, None, NOTHING))
    grid.fault = lambda client, asked, reply: None if client == "1" else reply
    for _ in range(ATTEMPTS):
        roster.refresh(1.0)
    assert list(roster.refused.values()) == ["no answer within 1 s"]
    grid.fault = lambda client, asked, reply: reply
    roster.refresh(1.0)
    assert "1" not in roster.node
    grid.offline.add("1")
    roster.refresh(1.0)
    assert not roster.refused
    grid.offline.clear()
    roster.refresh(1.0)
    assert set(roster.node) == set(deployment.federation.names)
