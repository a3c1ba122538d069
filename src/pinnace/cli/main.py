"""The pinnace command."""

from __future__ import annotations

from pinnace.cli.migrate_storage import migrate
from pinnace.cli.up import app
from pinnace.cli.why_denied import why_denied

app.command("why-denied")(why_denied)
app.command("migrate-storage")(migrate)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
