"""Speaks the API to any server, over HTTP or in process.

Public: the names below, and the errors in `pinnace.model.errors`.
"""

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.rates import Rate

__all__ = ["Client", "Rate", "connect"]
