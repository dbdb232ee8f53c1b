"""Names as text of LaTeX and Markdown: a name is data, whatever marks it holds."""

from __future__ import annotations

import re

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}
MARKDOWN = re.compile(r"([\\`*_{}\[\]<>~|#!&$:@]|(?<=\bwww)\.)", re.IGNORECASE)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def latex(text: object) -> str:
    """Return a text that LaTeX prints as it is, on one line.

    >>> print(latex("a_b & 5%"))
    a\\_b \\& 5\\%
    """
    return "".join(LATEX.get(letter, letter) for letter in CONTROL.sub(" ", str(text)))


def markdown(text: object) -> str:
    """Return a text that Markdown shows as it is, within a cell of a table.

    >>> print(markdown("a_b | eagle(lam=2)"))
    a\\_b \\| eagle(lam=2)
    """
    return MARKDOWN.sub(r"\\\1", CONTROL.sub(" ", str(text)))
