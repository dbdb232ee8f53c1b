"""Characters of plays by role, and how a file of text is read."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.folder import find
from fedparity.data.sequences import windows
from fedparity.errors import InputError

LARGEST = 256 * 1024 * 1024


@checked
def shakespeare(
    length: Annotated[int, Field(ge=1, le=10_000)] = 80,
    least: Annotated[int, Field(ge=1)] = 5,
    data_dir: Path | str | None = None,
) -> Dataset:
    """What the roles of Shakespeare's plays say: the next character is to be told.

    One natural client a role that says at least ``least`` windows of ``length`` characters; the
    others are left out. An example is a window, its target the same one character later. Read from
    ``tinyshakespeare/input.txt``, gzipped or not: speeches after a line with the role and a colon,
    with an empty line between them; 65 different characters.

    Notes
    -----
    LEAF and the papers that use it take the collected plays, where a client is a role of one play;
    this is the million characters of char-rnn. Windows do not overlap.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Aguera y Arcas. Communication-efficient learning of deep
    networks from decentralized data. AISTATS 2017.
    Karpathy. The unreasonable effectiveness of recurrent neural networks. 2015.
    """
    remedy = "get input.txt of github.com/karpathy/char-rnn, data/tinyshakespeare"
    names = ("tinyshakespeare/input.txt", "tinyshakespeare/input.txt.gz")
    text = read_text(find("shakespeare", data_dir, names, remedy))
    said: dict[str, list[str]] = {}
    for speech in text.split("\n\n"):
        role, colon, words = speech.partition(":\n")
        if colon and "\n" not in role.strip():
            said.setdefault(role.strip(), []).append(words)
    speeches = {role: "\n".join(words) for role, words in said.items()}
    enough = {role: t for role, t in speeches.items() if (len(t) - 1) // length >= least}
    if not enough:
        raise InputError(f"shakespeare: no role has {least} windows of {length} characters")
    cut = windows(enough, length, "".join(sorted(set(text))))
    return Dataset(
        "shakespeare",
        cut.x,
        cut.y,
        cut.outputs,
        "tokens",
        cut.letters,
        natural=cut.owner,
        natural_names=tuple(enough),
    ).named("shakespeare", length=length, least=least)


def read_text(path: Path) -> str:
    """Return the text of a file, gzipped or not, of a size that a text may have."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise InputError(f"{path} is larger than any text it could be")
        return content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a whole text ({error}): get it again") from None
