"""The command line: ``fedparity run | compare | resume | check | list | explain`` and more.

Nothing heavy is imported before a command needs it, so that help and mistakes answer at once.
"""

from fedparity.cli.entry import main

__all__ = ["main"]
