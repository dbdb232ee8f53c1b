"""What the tests of deployment share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a directory with certificates and the keys of two nodes."""
    from fedparity.deploy.certificates import make_certificates

    folder = tmp_path / "keys"
    make_certificates(folder, 2, ["superlink.example.org"])
    return folder
