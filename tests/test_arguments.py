"""Wrong arguments in Python are told in one line, with the remedy."""

from __future__ import annotations

import pytest

import fedparity as fp
from fedparity.parts import Eagle, Prox

WRONG = {
    "unknown setting of Solver 'lrr': did you mean 'lr'?": lambda: fp.Solver(lrr=0.1),
    "Solver: lr should be a valid number": lambda: fp.Solver("fast"),
    "Solver: lr should be greater than 0, got -1": lambda: fp.Solver(lr=-1),
    "Solver: takes steps or epochs, not both": lambda: fp.Solver(steps=1, epochs=1),
    "Solver: takes 10 settings, no more: lr, steps": lambda: fp.Solver(*range(1, 20)),
    "Solver: optimizer should be 'sgd' or 'adam', got 'x'": lambda: fp.Solver(optimizer="x"),
    "unknown setting of Stop 'patients': did you mean": lambda: fp.Stop(patients=3),
    "unknown setting of Eagle 'lamm': did you mean 'lam'?": lambda: Eagle(lamm=1),
    "Eagle: lam should be greater than or equal to 0, got -1": lambda: Eagle(lam=-1),
    "Prox: mu should be a valid number": lambda: Prox(mu=None),
    "Dirichlet: alpha must be given": lambda: fp.Dirichlet(),
    "unknown setting of Dirichlet 'alfa'": lambda: fp.Dirichlet(alfa=1),
    "IID: takes 0 settings, no more": lambda: fp.IID(3),
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_argument_is_told_in_one_line(line):
    with pytest.raises(fp.InputError) as refused:
        WRONG[line]()
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_a_setting_read_from_a_text_is_told_under_the_name_in_the_text():
    with pytest.raises(fp.InputError, match=r"^eagle: lam should be greater"):
        fp.algorithm("eagle(lam=-1)")
