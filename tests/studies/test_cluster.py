"""Runs of a study on a Ray cluster: here one of this machine."""

from __future__ import annotations

import os

import pytest

import fedparity as fp
from fedparity.studies.cluster import Cluster
from fedparity.studies.pool import Message
from fedparity.studies.work import Order

pytestmark = pytest.mark.xdist_group("ray")
SETTINGS = {"data": "synthetic(clients=3)", "model": "linear", "rounds": 1, "lstar": "none"}


@pytest.fixture(scope="module")
def ray():
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patched.setenv("RAY_AUTH_TOKEN", "7" * 64)  # else it writes one into the home
        ray = pytest.importorskip("ray")
        ray.init(
            address="local",
            num_cpus=1,
            object_store_memory=80 * 1024**2,
            include_dashboard=False,
            log_to_driver=False,
        )
        assert ray.util.get_node_ip_address() == "127.0.0.1"
        yield ray
        ray.shutdown()


def test_a_cluster_does_what_is_done_here_and_a_run_that_fails_is_a_row(ray, tmp_path):
    settings = {**SETTINGS, "model": "mlp"}
    study = fp.Study(settings, ["fedavg", "qffl"], tmp_path, seeds=1)
    (tmp_path / "runs").mkdir()
    study.runs[1].directory.write_text("in the way")
    table = study.run(on="ray").by_run()
    assert list(table["state"]) == ["done", "failed"], table["reason"].tolist()
    here = fp.load(study.runs[0].directory).run()
    assert here.summary()["mean_loss"] == pytest.approx(table.loc[0, "mean_loss"], rel=1e-6)


def test_a_run_that_the_cluster_loses_is_told(ray, tmp_path):
    cluster = Cluster(1, 1)
    cluster._task = ray.remote(max_retries=0)(lambda *told: os._exit(1))
    cluster.give(0, Order(SETTINGS, tmp_path / "run"))
    assert cluster.wait() == Message(0, None)
    state, reason = cluster.lost(0)
    assert state == "failed"
    assert reason.startswith("Ray lost it: ")
    cluster.close()


def test_another_place_and_data_made_here_are_refused(tmp_path):
    study = fp.Study(SETTINGS, ["fedavg"], tmp_path, seeds=1)
    with pytest.raises(fp.InputError, match="did you mean 'ray'"):
        study.run(on="raay")
    own = {key: value for key, value in SETTINGS.items() if key != "data"}
    made = fp.testing.unlike_clients()
    with pytest.raises(fp.InputError, match="stay in this process"):
        fp.Study(own, ["fedavg"], tmp_path, federation=made, seeds=1).run(on="ray")
