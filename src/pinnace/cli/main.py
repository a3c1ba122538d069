"""The pinnace command."""

from __future__ import annotations

from pinnace.cli.command_table import app


def main() -> None:
    """Run the command. Only its own modules are imported, so that a cluster starts sooner."""
    app(prog_name="pinnace")


if __name__ == "__main__":
    main()
