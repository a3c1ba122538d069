"""The pinnace command."""

from __future__ import annotations

from pinnace.cli.up import app


def main() -> None:
    app()


if __name__ == "__main__":
    main()
