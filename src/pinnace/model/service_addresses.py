"""Where services are reached from the server's process, which no proxy of a node serves."""

from __future__ import annotations

from typing import Protocol


class ServiceAddresses(Protocol):
    """Finds an endpoint of a service."""

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Return a host and a port. Raise LookupError with a sentence if the Service has no usable endpoint."""
