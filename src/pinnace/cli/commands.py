"""Every command of pinnace, put together."""

from __future__ import annotations

from pinnace.cli.init import init
from pinnace.cli.manifests import manifests
from pinnace.cli.migrate_storage import migrate
from pinnace.cli.run import run
from pinnace.cli.up import app
from pinnace.cli.why_denied import why_denied

__all__ = ["app"]

app.command()(init)
app.command()(run)
app.command()(manifests)
app.command("why-denied")(why_denied)
app.command("migrate-storage")(migrate)
