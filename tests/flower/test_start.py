"""Before the first round: who takes part, and who is refused with which reason."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Context, RecordDict
from inprocess import Deployment, spoiled, vector
from runs import assert_same

from fedparity.data import Federation
from fedparity.errors import InputError
from fedparity.flower import make_client_app, make_server_app
from fedparity.flower.census import Hello, stand_in
from fedparity.flower.codec import BadMessage
from fedparity.flower.config import client_of, run_config
from fedparity.flower.testing import LocalGrid
from fedparity.records.model import load_model
from fedparity.records.rundir import RunDir
from fedparity.run.file import resume

QUICK = {"rounds": 1, "lstar": "none"}


def altered(who: str, **changes: object):
    """Return the fault of one node that tells something else of itself."""

    def fault(client, asked, reply):
        if client == who and asked.metadata.message_type == "query.hello":
            words = reply.content["words"]
            hello = json.loads(words["hello"])
            for key, value in changes.items():
                (hello["settings"] if key in hello["settings"] else hello)[key] = value
            words["hello"] = json.dumps(hello)
        return reply

    return fault


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"algorithm": "qffl"}, "client '1': its algorithm is 'qffl', the server's is 'fedavg'"),
        ({"torch": "1.0"}, "client '1': its torch is '1.0'"),
        ({"fedparity": "9"}, "client '1': its fedparity is '9'"),
        ({"seed": "7"}, "client '1': its seed is '7', the server's is '1'"),
        ({"outputs": 2}, "client '1': its outputs is 2, that of '0' is 3"),
        ({"shape": [4]}, r"client '1': its shape is \(4,\), that of '0' is \(3,\)"),
        ({"fields": [["x", [3], False]]}, "client '1': its fields is .*, that of '0' is "),
        ({"fields": [["x", [2], False]]}, "its 'fields' is wrong: .* do not fill its input"),
        ({"train": -5}, "what it tells of its 'train' is wrong"),
        ({"shape": [1 << 20, 1 << 20]}, "what it tells of its 'shape' is wrong: .* more than"),
        ({"shape": [1] * 40}, "what it tells of its 'shape' is wrong"),
        ({"train": "many"}, "what it tells of its 'train' is wrong"),
        ({"more": 1}, "what it tells of its 'more' is wrong"),
        ({"client": "9"}, "it is client '9', which is not one of the run's: 0, 1, 2, 3"),
        ({"client": "0"}, "client '0': another node of it has other data"),
    ],
)
def test_a_node_that_does_not_fit_is_refused_with_its_reason(changes, told, tmp_path):
    deployment = Deployment(tmp_path, QUICK)
    # Node ids are random: the node of client 0 shall be the first that is heard.
    contexts = sorted(deployment.grid.nodes.values(), key=lambda c: c.node_config["client-id"])
    deployment.grid.nodes = {n + 1: context for n, context in enumerate(contexts)}
    with pytest.raises(InputError, match=f"the federation is not complete: .*{told}"):
        deployment.run(fault=altered("1", **changes))
    assert not (tmp_path / "run").exists()


def test_sites_with_another_experiment_compute_nothing_and_are_refused(tmp_path):
    deployment = Deployment(tmp_path, {"rounds": 1, "algorithm": "eagle"})
    deployment.settings["solver"] = {"lr": 0.5}
    with pytest.raises(InputError, match=r"client '0': its solver is .* the server's is"):
        deployment.run()
    assert not (tmp_path / "sites").exists()


def test_a_client_without_a_node_is_named(tmp_path):
    deployment = Deployment(tmp_path, QUICK)
    deployment.grid.offline.update({"1", "3"})
    with pytest.raises(InputError, match="no node is connected for '1', '3'"):
        deployment.run()


def test_a_client_with_two_nodes_is_refused(tmp_path):
    deployment = Deployment(tmp_path, QUICK)
    deployment.grid.connect("2")
    with pytest.raises(InputError, match="client '2' has two nodes"):
        deployment.run()


def test_nodes_of_other_clients_do_not_matter(tmp_path):
    deployment = Deployment(
        tmp_path,
        QUICK,
        Federation.from_arrays(np.ones((9, 1)), [0, 1, 0] * 3, [0, 0, 0, 1, 1, 1, 2, 2, 2]),
    )
    everyone = deployment.run(out="three")
    assert everyone.rounds == 1
    deployment.settings["seed"] = 1
    two = deployment.run(out="two", clients="0,2")
    assert list(two.clients["client"]) == ["0", "2"]


def test_a_site_that_cannot_load_its_data_says_so_and_the_rest_to_its_own_log(tmp_path, capsys):
    def load(client):
        raise OSError("no such patient: Jane Doe")

    deployment = Deployment(tmp_path, QUICK)
    app = make_client_app(deployment.settings, load)
    deployment.grid = LocalGrid(app, deployment.federation.names, tmp_path)
    with pytest.raises(InputError, match="its site failed: OSError, see the log of the site") as e:
        deployment.run()
    assert "Jane" not in str(e.value)
    assert "no such patient: Jane Doe" in capsys.readouterr().err


def test_a_site_has_one_client(tmp_path):
    deployment = Deployment(tmp_path, QUICK)
    app = make_client_app(deployment.settings, lambda client: deployment.federation)
    deployment.grid = LocalGrid(app, deployment.federation.names, tmp_path)
    with pytest.raises(InputError, match=r"load\('0'\) gives 4 clients: a site has one"):
        deployment.run()


@pytest.mark.parametrize(
    ("value", "told"), [(-1.0, "a loss is not negative"), (None, "leaves out 'alone/test/loss'")]
)
def test_an_impossible_lstar_is_refused(value, told, tmp_path):
    deployment = Deployment(tmp_path, {"rounds": 1})
    with pytest.raises(InputError, match=f"the L. of client '0' is rejected: .*{told}"):
        deployment.run(fault=spoiled("0", "query.hello", "numbers", "test", value))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "value"), [("rounds", 3.0), ("rounds", None), ("capped", 0.5)])
def test_impossible_rounds_alone_are_refused(name, value, tmp_path):
    deployment = Deployment(tmp_path, {"rounds": 1})
    with pytest.raises(InputError, match=f"the L. of client '0' is rejected: its '{name}' alone"):
        deployment.run(fault=spoiled("0", "query.hello", "numbers", name, value))


def test_an_lstar_that_is_given_is_not_computed_at_the_sites(tmp_path):
    numbers = {"0": 0.4, "1": 0.3, "2": 0.2, "3": 0.1}
    settings = {"rounds": 1, "algorithm": "eagle(lam=0.1)", "lstar": numbers}
    deployment = Deployment(tmp_path, settings)
    deployed, simulated = deployment.run(), deployment.simulate()
    assert_same(RunDir(deployed.path), RunDir(simulated.path))
    assert deployed.clients["test_lstar"][0] == 0.4
    assert not list(tmp_path.glob("sites/client-*/lstar"))


def test_lstar_is_computed_once_for_several_runs(tmp_path):
    deployment = Deployment(tmp_path, {"rounds": 1})
    deployment.run()
    files = list(tmp_path.glob("sites/client-*/lstar/*.parquet"))
    assert {file.parents[1].name for file in files} == {f"client-{k}" for k in range(4)}
    stamps = [file.stat().st_mtime_ns for file in files]
    deployment.run(out="again")
    assert [file.stat().st_mtime_ns for file in files] == stamps


def test_a_run_directory_that_is_in_use_is_refused_before_anybody_is_asked(tmp_path):
    deployment = Deployment(tmp_path, QUICK)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    with pytest.raises(InputError, match="not an empty directory"):
        deployment.run()
    assert not deployment.grid.sent


def test_a_resume_under_other_conditions_is_refused(tmp_path):
    deployment = Deployment(tmp_path, QUICK)
    deployment.run()
    with pytest.raises(InputError, match="its min_replies is 1, here it is 3"):
        deployment.run(resume=True, min_replies=3)
    with pytest.raises(InputError, match="its clients are 0, 1, 2, 3, the run config names 0, 1"):
        deployment.run(resume=True, clients="0,1")


def test_a_site_whose_data_changed_is_refused_on_resume(tmp_path):
    deployment = Deployment(tmp_path, QUICK)
    deployment.run()
    changed = altered("1", fingerprint="other")
    deployment.grid.nodes = {n + 1: c for n, c in enumerate(deployment.grid.nodes.values())}
    with pytest.raises(InputError, match="client '1': it began the run with other data"):
        deployment.run(resume=True, min_replies=4, fault=changed)


def test_a_deployed_run_is_not_resumed_as_a_simulation(tmp_path):
    Deployment(tmp_path, QUICK).run()
    with pytest.raises(InputError, match="go on with it by 'flwr run' with resume=true"):
        resume(tmp_path / "run")


def test_the_model_of_a_deployed_run_is_read_without_its_data(tmp_path):
    result = Deployment(tmp_path, QUICK).run()
    read = torch.cat([p.detach().reshape(-1) for p in load_model(tmp_path / "run").parameters()])
    assert torch.equal(read, vector(result))


def test_a_stand_in_takes_no_memory():
    hello = Hello(
        "a", 10**9, 10**8, 0, (3, 32, 32), (), 10, "classes", (), (), "f", "m", 1, "3", {}
    )
    federation = stand_in([hello, hello.__class__(**{**vars(hello), "client": "b"})])
    for data in (federation, federation.to(torch.float64)):
        assert data.train.sizes.tolist() == [10**9, 10**9]
        assert data.train.x.untyped_storage().nbytes() <= 8 * 3 * 32 * 32
    assert federation.to(torch.float64).train.x.dtype == torch.float64
    assert federation.fingerprint == federation.to(torch.float64).fingerprint


@pytest.mark.parametrize("text", [None, 3, "", "[]", "{}", "x" * (1 << 21)])
def test_facts_that_cannot_be_read_are_refused(text):
    with pytest.raises(BadMessage, match=r"what it tells|tells nothing"):
        Hello.read(text)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "names no 'clients'"),
        ({"clients": "a"}, "names no 'out'"),
        ({"clients": "a,b,a", "out": "x"}, "names 'a' twice"),
        ({"clients": "a", "out": "x", "dedline": 3}, "did you mean 'deadline'"),
        ({"clients": "a", "out": "x", "deadline": 0}, "deadline"),
    ],
)
def test_a_wrong_run_config_is_refused(config, told):
    with pytest.raises(InputError, match=told):
        run_config(config)


def test_a_run_config_is_read():
    config = run_config({"clients": "a, b", "out": "x", "min-replies": 2, "first-deadline": 5})
    assert (config.clients, config.min_replies, config.first_deadline) == (("a", "b"), 2, 5.0)


@pytest.mark.parametrize(
    ("node", "client"), [({"client-id": 3}, "3"), ({"partition-id": 1, "num-partitions": 2}, "b")]
)
def test_a_node_is_told_its_client_or_takes_its_place(node, client):
    assert client_of(Context(1, 2, node, RecordDict(), {"clients": "a,b"})) == client


def test_a_node_that_is_told_nothing_is_refused():
    with pytest.raises(InputError, match="names no client"):
        client_of(Context(1, 2, {}, RecordDict(), {"clients": "a,b"}))


def test_apps_run_as_flower_runs_them(tmp_path):
    deployment = Deployment(tmp_path, QUICK)
    config = {"clients": "0,1,2,3", "out": str(tmp_path / "run"), "wait": 0}
    app = make_server_app(deployment.settings)
    app(deployment.grid, Context(1, 1, {}, RecordDict(), config))
    assert (tmp_path / "run" / "report.html").exists()


def test_an_app_can_be_sent_to_the_workers_of_a_simulation(tmp_path):
    cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed")
    deployment = Deployment(tmp_path, {"rounds": 1})
    before = deployment.run()  # the app has met its clients
    sent = cloudpickle.dumps(deployment.grid.app)
    assert len(sent) < len(cloudpickle.dumps(deployment.federation)) + 10_000
    deployment.grid.app = cloudpickle.loads(sent)
    assert torch.equal(vector(deployment.run(out="again")), vector(before))


def test_the_token_of_an_app_is_not_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["flwr-serverapp", "--token", "secret-token"])
    result = Deployment(tmp_path, QUICK).run()
    assert result.settings["record"]["command"] == ["flwr", "run"]
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"secret-token" in file.read_bytes()]


def test_without_flower_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    for make in (lambda: make_server_app({}), lambda: make_client_app({}, lambda client: None)):
        with pytest.raises(InputError, match=r'pip install "fedparity\[flower\]"'):
            make()


def test_a_run_holds_its_directory_against_a_second_server(tmp_path):
    deployment, refused = Deployment(tmp_path, QUICK), []

    def fault(client, asked, reply):
        if asked.metadata.message_type == "train":
            for resume in (False, True):
                with pytest.raises(InputError, match="is in use by fedparity") as error:
                    deployment.run(resume=resume)
                refused.append(error)
        return reply

    assert deployment.run(fault=fault).rounds == 1
    assert refused
