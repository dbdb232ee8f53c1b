"""Tuning: settings searched for an aim, such as even gaps at little cost, on validation data only.

:func:`tune` needs Optuna: ``pip install 'fedparity[tune]'``.
"""

from fedparity.tuning.aim import Aim
from fedparity.tuning.search import Tuned, tune

__all__ = ["Aim", "Tuned", "tune"]
