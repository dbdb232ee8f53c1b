"""The command line as ``python -m fedparity``, where the command itself is not on the path."""

from fedparity.cli import main

main()
