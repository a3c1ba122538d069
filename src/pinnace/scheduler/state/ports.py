"""The host ports that pods have taken, by port: a pod with host ports finds the nodes it conflicts with directly."""

from __future__ import annotations

from collections import Counter

from pinnace.scheduler.state.pods import HostPort

_ANY = "0.0.0.0"


class UsedHostPorts:
    def __init__(self) -> None:
        self._taken: dict[tuple[str, int], dict[int, Counter[str]]] = {}
        """The addresses in use by protocol and port, and by slot."""

    def add(self, ports: tuple[HostPort, ...], slot: int, by: int) -> None:
        for protocol, port, address in ports:
            slots = self._taken.setdefault((protocol, port), {})
            addresses = slots.setdefault(slot, Counter())
            addresses[address] += by
            if addresses[address] <= 0:
                del addresses[address]
            if not addresses:
                del slots[slot]
            if not slots:
                del self._taken[protocol, port]

    def conflicts(self, ports: tuple[HostPort, ...]) -> set[int]:
        """Return the slots where one of the ports is taken."""
        conflicts: set[int] = set()
        for protocol, port, address in ports:
            for slot, addresses in self._taken.get((protocol, port), {}).items():
                if address == _ANY or _ANY in addresses or address in addresses:
                    conflicts.add(slot)
        return conflicts
