"""The contract of a part, as checks that anyone can run on a part of their own.

>>> from fedparity.parts import Prox
>>> check_part(Prox(mu=0.5))

With pytest, one test a check::

    @pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
    def test_my_part_keeps_the_contract(check):
        check(MyPart(), Trial())
"""

from fedparity.testing.bench import Bench, Trial, unlike_clients
from fedparity.testing.checks import CHECKS, Check, check_part

__all__ = ["CHECKS", "Bench", "Check", "Trial", "check_part", "unlike_clients"]
