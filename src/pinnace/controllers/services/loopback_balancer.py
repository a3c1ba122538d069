"""Load balancers for one machine: each Service gets a loopback address of its own."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence

from pinnace.model.objects import Object

_NETWORK = ipaddress.ip_network("127.64.0.0/10")


class LoopbackBalancer:
    """Allocates addresses from 127.64.0.0/10, which every Linux machine accepts. The node's proxy listens there.

    An address follows from the Service's uid, and a Service keeps its address, so that a restart changes nothing.
    """

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    async def ensure(self, service: Object, nodes: Sequence[Object]) -> list[Object]:
        uid = service["metadata"]["uid"]
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        wishes = [service["spec"].get("loadBalancerIP"), *(address.get("ip") for address in ingress)]
        for wish in wishes:
            if wish and _is_loopback(wish) and self._taken.setdefault(wish, uid) == uid:
                return self._only(wish, uid)
        number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4])
        while True:
            address = str(_NETWORK[1 + number % (_NETWORK.num_addresses - 2)])
            if self._taken.setdefault(address, uid) == uid:
                return self._only(address, uid)
            number += 1

    async def delete(self, service: Object) -> None:
        self._only("", service["metadata"]["uid"])

    def _only(self, address: str, uid: str) -> list[Object]:
        for other in [taken for taken, owner in self._taken.items() if owner == uid and taken != address]:
            del self._taken[other]
        return [{"ip": address}]


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
