"""Where services are reached from the server's process, which no proxy of a node serves."""

from __future__ import annotations

from typing import Protocol


class ServiceAddresses(Protocol):
    """Finds an endpoint of a service."""

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """A host and a port. Raises LookupError with a sentence if the service has no endpoint that can be reached."""
