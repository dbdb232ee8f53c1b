"""Messages are counted in a round that is really run, and agree with the published costs."""

from __future__ import annotations

import pytest

from fedparity.catalogue.traffic import Amount, traffic
from fedparity.parts import PARTS
from fedparity.recipes import RECIPES, algorithm

# Exchanges a round, and bytes a client sends and receives on top of FedAvg, from what the papers
# send: a number is 4 bytes, a model 4d.
AT_A_GLANCE = [
    ("fedavg", 1, "0", "0"),
    ("fedsgd", 1, "0", "0"),
    ("fedprox", 1, "0", "0"),
    ("fedavgm", 1, "0", "0"),
    ("fedadam", 1, "0", "0"),
    ("fedvarp", 1, "0", "0"),
    ("fedpgvc(mode=literal)", 1, "0", "0"),
    ("lsr", 1, "0", "0"),
    ("afl", 1, "4", "0"),
    ("fedeba", 1, "4", "0"),
    ("prac_fedeba_plus", 1, "8", "0"),
    ("fedfv", 1, "4", "0"),
    ("eagle(apply=gradient)", 1, "4", "4"),
    ("eagle(weights=fresh, apply=gradient)", 2, "4", "4"),
    ("scaffold", 1, "4d", "4d"),
    # With two groups: loss and weight of each; the rates of FairFed, with the accuracy.
    ("fedminmax", 1, "8", "8"),
    ("fairfed", 1, "20", "0"),
    # Loss and share of two answers of two groups, the weights of each group.
    ("fedfb", 1, "32", "8"),
    ("scaff_pd", 2, "4d + 4", "4d"),
    ("fedpvr(layers=2)", 1, "4 x last 2 layers", "4 x last 2 layers"),
]

# Where the library sends something else, and why.
DIFFERENT = [
    # Besides the loss, the squared norm of the update: 8 instead of 4.
    ("qffl", 1, "8", "0"),
    # The norm of the first gradient, and the level by which gradients are capped: 4 instead of 0.
    ("fedpgvc", 1, "4", "4"),
    # The steps of each client follow from settings the server knows: 0 instead of 8.
    ("fednova", 1, "0", "0"),
    # Besides the fair gradient, the strength of the alignment: 4d + 4 instead of 4d.
    ("fedeba_plus(alpha=0.5)", 2, "4d + 8", "4d + 4"),
    # The weight is put on the update where it arrives, so it need not be sent: 0 instead of 4.
    ("eagle", 1, "4", "0"),
    ("eagle(weights=fresh)", 1, "4", "0"),
    # The 2 s + 1 points of the line search, asked for at once: 4 + 4 x 11 up, 4d + 4 x 11 down.
    ("fedmdfg", 2, "48", "4d + 44"),
]


@pytest.mark.parametrize(("text", "exchanges", "up", "down"), AT_A_GLANCE + DIFFERENT)
def test_messages_cost_what_the_papers_send(text, exchanges, up, down):
    found = traffic(algorithm(text))
    assert len(found.exchanges) == exchanges
    assert (found.extra_up.bytes(), found.extra_down.bytes()) == (up, down)


@pytest.mark.parametrize("name", [*PARTS, *RECIPES])
def test_every_algorithm_can_be_counted(name):
    assert "train" in traffic(algorithm(name)).exchanges


def test_parts_of_a_composition_add_up():
    found = traffic(algorithm("scaffold+eagle"))
    assert found.up == {"scaffold": Amount(models=1), "eagle": Amount(scalars=1)}
    assert str(found.extra_up) == "d + 1"


def test_clients_that_train_alone_send_nothing():
    assert not traffic(algorithm("local")).shares_model
    assert traffic(algorithm("fedavg")).shares_model


def test_amounts_are_written_as_sums():
    assert str(Amount()) == "0"
    assert str(Amount(models=2, layers=(1,), scalars=3)) == "2d + last 1 layer + 3"
    assert Amount(models=2, scalars=3).bytes() == "8d + 12"


def test_counting_leaves_no_trace_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPARITY_CACHE", str(tmp_path))
    traffic(algorithm("eagle"))
    assert not any(tmp_path.iterdir())
