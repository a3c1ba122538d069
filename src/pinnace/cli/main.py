"""The pinnace command."""

from __future__ import annotations

from pinnace.cli.up import app
from pinnace.cli.why_denied import why_denied

app.command("why-denied")(why_denied)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
