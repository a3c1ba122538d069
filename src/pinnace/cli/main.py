"""The pinnace command."""

from __future__ import annotations

from pinnace.cli.command_table import app


def main() -> None:
    """Run what was asked for. Only what that needs is imported: a cluster is ready sooner so."""
    app(prog_name="pinnace")


if __name__ == "__main__":
    main()
