"""Parts that go by groups, over Flower: every site names the same groups, or is told why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from inprocess import SETTINGS, Deployment

import fedparity as fp
from fedparity.errors import InputError
from fedparity.flower import make_client_app
from fedparity.flower.testing import LocalGrid
from fedparity.testing import unlike_clients

MINE = {"algorithm": "fedminmax", "lstar": "none", "rounds": 1}


def deployed(tmp_path, change) -> Deployment:
    """Return sites of which client 1 loads what ``change`` makes of its data."""
    federation = unlike_clients()

    def load(client: str) -> fp.Federation:
        own = federation.only(client)
        return change(own) if client == "1" else own

    made = Deployment(tmp_path, MINE, federation)
    app = make_client_app({**SETTINGS, **MINE}, load)
    made.grid = LocalGrid(app, federation.names, tmp_path / "sites")
    return made


def test_sites_that_name_other_groups_are_refused_with_both_names(tmp_path):
    made = deployed(tmp_path, lambda own: replace(own, groups={"group": ("a", "c")}))
    told = "its groups of 'group' are 'a', 'c', those of '0' are 'a', 'b': let every site name"
    with pytest.raises(InputError, match=told):
        made.run()


def test_a_site_without_such_groups_is_refused(tmp_path):
    def without(own: fp.Federation) -> fp.Federation:
        splits = {n: replace(getattr(own, n), groups={}) for n in ("train", "validation", "test")}
        return replace(own, groups={}, **splits)

    with pytest.raises(InputError, match="goes by groups of the kind 'group', which load"):
        deployed(tmp_path, without).run()


def test_counts_by_group_are_told_only_to_parts_that_go_by_them(tmp_path):
    made = Deployment(tmp_path, {**MINE, "algorithm": "fedavg"})
    hello = []

    def watch(client, asked, reply):
        if asked.metadata.message_type == "query.hello":
            hello.append(str(reply.content))
        return reply

    made.run(fault=watch)
    assert hello
    assert all('"counts": {}' in text for text in hello)
