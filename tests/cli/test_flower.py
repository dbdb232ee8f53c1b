"""The commands around a real federation."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("processes")  # one federation at a time

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

EXPERIMENT = "data: eagle_synthetic(n=20)\nmodel: linear\nrounds: 2\n"


def test_certificates_are_made_and_found_fine(cli):
    made = cli("flower", "certificates", "keys", "--nodes", "3", "--host", "superlink.org")
    assert made.code == 0
    assert "keys/node-3   secret" in made.out
    assert "keys/node-3.pub\n" in made.out
    checked = cli("flower", "check", "keys")
    assert checked.code == 0
    assert "wrong" not in checked.out
    assert "superlink.org" in checked.out


def test_a_check_that_finds_something_wrong_ends_with_code_2(cli):
    assert cli("flower", "certificates", "keys", "--nodes", "1").code == 0
    Path("keys/node-1").chmod(0o644)
    done = cli("flower", "check", "keys")
    assert done.code == 2
    assert "chmod 600 keys/node-1" in done.out
    assert done.err == "fedparity: 1 of 6 checks found something wrong, see above\n"


def test_an_app_is_written_and_its_ids_are_checked(cli):
    Path("experiment.yaml").write_text(EXPERIMENT)
    made = cli("flower", "new", "app", "--experiment", "experiment.yaml")
    assert made.code == 0
    assert sorted(path.name for path in Path("app").iterdir()) == [
        "client_app.py",
        "experiment.yaml",
        "pyproject.toml",
        "server_app.py",
        "task.py",
    ]
    fine = cli("flower", "check", "--insecure", "--app", "app", "--client-id", "client-2")
    assert fine.code == 0
    wrong = cli("flower", "check", "--insecure", "--app", "app", "--client-id", "client-4")
    assert wrong.code == 2
    assert "'client-4' is not among them" in wrong.out


WRONG = [
    (["flower", "chek"], "unknown command 'chek': did you mean 'check'"),
    (["flower", "certificates", "keys"], "missing option '--nodes'"),
    (["flower", "certificates", "keys", "--nodes", "0"], "invalid value for '--nodes'"),
    (["flower", "certificates", "keys", "--nodes", "1", "--days", "9999"], "between 1 and 825"),
    (["flower", "check"], "or ask for --insecure"),
    (["flower", "check", "--insecure", "--client-id", "a"], "add --app DIR"),
    (["flower", "new", "app", "--experiment", "absent.yaml"], "cannot read absent.yaml"),
    (["flower", "local", "absent"], "fedparity flower new absent"),
]


@pytest.mark.parametrize(("args", "told"), WRONG, ids=[told[:40] for _, told in WRONG])
def test_a_mistake_is_one_line_and_leaves_nothing(cli, args, told):
    done = cli(*args)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert told in done.err
    assert list(Path().iterdir()) == []


def test_more_nodes_than_clients_are_refused(cli):
    Path("experiment.yaml").write_text(EXPERIMENT)
    assert cli("flower", "new", "app", "--experiment", "experiment.yaml").code == 0
    done = cli("flower", "local", "app", "--nodes", "4")
    assert done.code == 2
    assert "--nodes 4: app has 3 clients" in done.err


def test_a_machine_is_not_flooded_with_nodes(cli):
    Path("experiment.yaml").write_text(
        "data: {dataset: digits, partition: iid, clients: 30}\nmodel: linear\n"
    )
    assert cli("flower", "new", "app", "--experiment", "experiment.yaml").code == 0
    done = cli("flower", "local", "app")
    assert done.code == 2
    assert "--nodes 20" in done.err
