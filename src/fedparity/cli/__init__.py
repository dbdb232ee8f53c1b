"""The command line: ``fedparity run | compare | resume | profile | list | explain | flower | new``.

Nothing heavy is imported before a command needs it, so that help and mistakes answer at once.
"""

from fedparity.cli.entry import main

__all__ = ["main"]
