"""Ports for servers that must know their port before they listen."""

from __future__ import annotations

import socket
from random import SystemRandom

_PORTS = range(10_000, 30_000)
"""Below the ports of outgoing connections and of `bind` to port 0, and below those of Services of type NodePort."""

_chance = SystemRandom()  # The tests of properties seed the usual one: two processes would choose the same ports.
_taken: set[int] = set()


def free_port() -> int:
    """Return a port on which nothing listens. No connection of another test takes it meanwhile."""
    while True:
        port = _chance.choice(_PORTS)
        if port not in _taken and _is_free(port):
            _taken.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
