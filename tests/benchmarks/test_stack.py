"""A round of FedAvg passes through few modules, and changes between packages rarely."""

from __future__ import annotations

import pytest
import stack


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_round_does_not_grow(engine):
    found = stack.counted(engine)
    assert "method/algorithm" in found.modules  # what is watched is the whole round
    assert f"engines/{'reference' if engine == 'loop' else 'stacked'}/lane" in found.modules
    assert len(found.modules) <= 14, sorted(found.modules)
    assert 0 < len(found.crossings) <= 3, found.crossings
