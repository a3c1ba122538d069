"""A new cluster without sockets for each test, as for the server."""

from __future__ import annotations

from tests.server.conftest import alone, api, bob

__all__ = ["alone", "api", "bob"]
