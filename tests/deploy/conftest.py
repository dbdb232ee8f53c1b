"""Deployment is tested where Flower is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

from fedparity.deploy.certificates import make_certificates


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a directory with certificates and the keys of two nodes."""
    folder = tmp_path / "keys"
    make_certificates(folder, 2, ["superlink.example.org"])
    return folder
