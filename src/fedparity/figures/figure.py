"""A figure: a chart of Altair that is saved without a browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fedparity.errors import InputError, unknown

FORMATS = ("svg", "pdf", "png")
SCALE = 3
"""Dots of a PNG for each of the figure's."""
MISSING = "figures need altair and vl-convert-python: pip install 'fedparity[figures]'"


def altair() -> ModuleType:
    """Return Altair, or tell what is missing."""
    try:
        import altair
    except ImportError as error:
        raise InputError(MISSING) from error
    return altair


@dataclass(frozen=True)
class Figure:
    """A chart, to be looked at in a notebook, changed (``chart``), or saved."""

    chart: Any
    """An ``altair.Chart``."""

    def save(self, path: str | Path) -> Path:
        """Write ``.svg``, ``.pdf`` or ``.png``, by the ending of the path."""
        file = Path(path)
        form = file.suffix.removeprefix(".").lower()
        if form not in FORMATS:
            raise unknown("format of a figure", form, FORMATS)
        drawn = self.drawn(form)
        beside = file.with_name(file.name + ".part")
        try:
            beside.write_bytes(drawn)
        except OSError as error:
            raise InputError(f"{file} cannot be written: {error.strerror}") from error
        beside.replace(file)
        return file

    def drawn(self, form: str) -> bytes:
        """Return the bytes of a file of this format."""
        module = altair()
        try:
            import vl_convert
        except ImportError as error:
            raise InputError(MISSING) from error
        with module.data_transformers.enable("default", max_rows=None):
            told = self.chart.to_dict()
        if form == "svg":
            return str(vl_convert.vegalite_to_svg(told)).encode()
        if form == "pdf":
            return bytes(vl_convert.vegalite_to_pdf(told))
        return bytes(vl_convert.vegalite_to_png(told, scale=SCALE))

    def _repr_svg_(self) -> str:
        return self.drawn("svg").decode()
