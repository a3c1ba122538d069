"""The pinnace command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run what was asked for. `up` needs nothing of what the other commands load, and is ready sooner without."""
    if sys.argv[1:2] == ["up"]:
        from pinnace.cli.up import app  # noqa: PLC0415 - loaded by need
    else:
        from pinnace.cli.commands import app  # noqa: PLC0415 - loaded by need
    app()


if __name__ == "__main__":
    main()
