"""`python -m pinnace`: the pinnace command, without the modules of the current directory."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from pinnace.cli.main import main

if __name__ == "__main__":
    main()
