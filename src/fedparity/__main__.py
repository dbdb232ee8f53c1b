"""The command line as ``python -m fedparity``, where the command itself is not on the path."""

import os
import sys

if sys.path[:1] == [os.getcwd()]:
    # Python looks there first for the sake of -m; the command itself does not.
    del sys.path[0]

from fedparity.cli import main

main()
