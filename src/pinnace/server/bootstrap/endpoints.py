"""The endpoints of the kubernetes Service: the Endpoints and EndpointSlices that name the servers of the API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from itertools import takewhile
from typing import TypeAlias

import orjson

from pinnace.model.objects import Kind, Object, new_uid
from pinnace.model.resources import Resource
from pinnace.process.clock import to_rfc3339
from pinnace.server.foundation import Foundation
from pinnace.server.status.managers import entry as managed_entry
from pinnace.server.status.managers import fields_of
from pinnace.serving.cache.watch_cache import CacheEvent
from pinnace.serving.write.edits import encode
from pinnace.store.opening import MASTER_LEASE_SECONDS, MASTER_LEASES
from pinnace.store.store import Conflict, StoreError

NAMESPACE, SERVICE = "default", "kubernetes"
_FURTHER = f"{SERVICE}-ipv"
"""The beginning of the names of all slices but the first."""
_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice")
_CONTENT = ("subsets", "addressType", "endpoints", "ports")

Server: TypeAlias = tuple[str, int]
"""The address and the port of one server."""


def is_usable_address(address: str) -> bool:
    """Whether others can reach a server by this address: it is an IP address, and not that of all interfaces."""
    try:
        return not ip_address(address).is_unspecified
    except ValueError:
        return False


def api_endpoints(servers: Iterable[Server]) -> list[Object]:
    """Return the Endpoints and the EndpointSlices that name these servers.

    Servers with the same port and IP family share a slice. The largest slice has the name of the Service, as the only
    one has in Kubernetes, where all servers have the same port.
    """
    groups: dict[tuple[int, int], list[str]] = {}
    for address, port in sorted(set(servers)):
        groups.setdefault((ip_address(address).version, port), []).append(address)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    slices = [
        _slice(SERVICE if at == 0 else f"{_FURTHER}{version}-{port}", version, addresses, [_port(port)])
        for at, ((version, port), addresses) in enumerate(ordered)
    ]
    subsets = [{"addresses": [{"ip": ip} for ip in group], "ports": [_port(port)]} for (_, port), group in ordered]
    return [_endpoints(subsets), *(slices or [_slice(SERVICE, 4, [], [])])]


async def write_endpoints(foundation: Foundation, servers: Callable[[], Iterable[Server]]) -> None:
    """Let the Endpoints and EndpointSlices of the Service name these servers and no others.

    They are stored without validation, which refuses the loopback addresses that the API has here. If another server
    writes them at the same time, begin again with the servers that there are then.
    """
    while True:
        try:
            return await _write_all(foundation, api_endpoints(servers()))
        except Conflict:
            continue


async def _write_all(foundation: Foundation, wanted: list[Object]) -> None:
    for obj in wanted:
        resource = foundation.registry.of_kind(Kind.parse(obj["apiVersion"], obj["kind"]))
        if resource is not None:
            await _write(foundation, resource, obj)
    slices = foundation.registry.of_kind(_SLICE)
    if slices is not None:
        await _delete_slices(foundation, slices, keep={f"{NAMESPACE}/{obj['metadata']['name']}" for obj in wanted})


async def _write(foundation: Foundation, resource: Resource, obj: Object) -> None:
    key = f"{NAMESPACE}/{obj['metadata']['name']}"
    entry = foundation.fanout.cache(resource.prefix).entries.get(key)
    present = entry.decode() if entry is not None else {"metadata": {}}
    known = present["metadata"]
    if known.get("labels") == obj["metadata"]["labels"] and all(present.get(n) == obj.get(n) for n in _CONTENT):
        return
    made = {"uid": new_uid(), "creationTimestamp": to_rfc3339(foundation.clock.now())}
    obj["metadata"] = {**obj["metadata"], **made, **{name: known[name] for name in made if name in known}}
    obj["metadata"]["managedFields"] = [managed_entry(obj, fields_of(obj, _CONTENT), foundation.clock.now())]
    if obj["kind"] == _SLICE.name:
        obj["metadata"]["generation"] = known.get("generation", 0) + 1
    revision = entry.revision if entry is not None else 0
    await foundation.store.put(resource.prefix + key, encode(obj, resource), expected=revision)


async def _delete_slices(foundation: Foundation, slices: Resource, *, keep: set[str]) -> None:
    cache, beginning = foundation.fanout.cache(slices.prefix), f"{NAMESPACE}/{_FURTHER}"
    for key in takewhile(lambda key: key.startswith(beginning), cache.keys_of(NAMESPACE, after=beginning)):
        if key not in keep:
            await foundation.store.delete(slices.prefix + key, expected=cache.entries[key].revision)


def _port(port: int) -> Object:
    return {"name": "https", "port": port, "protocol": "TCP"}


def _endpoints(subsets: list[Object]) -> Object:
    metadata = {
        "name": SERVICE,
        "namespace": NAMESPACE,
        "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
    }
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, **({"subsets": subsets} if subsets else {})}


def _slice(name: str, version: int, addresses: list[str], ports: list[Object]) -> Object:
    labels = {"kubernetes.io/service-name": SERVICE}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "addressType": f"IPv{version}",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
        "ports": ports,
    }


log = logging.getLogger(__name__)

RENEW_SECONDS = 10.0
_RETRY_SECONDS = 1.0
_WITHDRAW_SECONDS = 5.0


class MasterLeases:
    """The lease of this server among those of all, and the endpoints that follow from them."""

    def __init__(self, foundation: Foundation, name: str, server: Server) -> None:
        """`name`: that of this server among all on one etcd."""
        self._foundation = foundation
        self._key = MASTER_LEASES + name
        self._server = server
        self._turn = asyncio.Lock()
        self._is_withdrawn = False
        self._renewals = 0
        self._changed = asyncio.Event()
        foundation.fanout.on_change(MASTER_LEASES, self._wake)

    async def publish(self) -> None:
        """Write the lease, and the endpoints with this server. Raise a StoreError."""
        await self._renew()
        await write_endpoints(self._foundation, self._live_servers)

    async def run_renewal(self) -> None:
        """Renew the lease until cancelled."""
        while True:
            await self._foundation.clock.sleep(RENEW_SECONDS)
            try:
                await self._renew()
            except StoreError as error:
                log.warning("the master lease could not be renewed, trying again in %d s: %s", RENEW_SECONDS, error)

    async def run_endpoints(self) -> None:
        """Write the endpoints whenever the lease of a server comes, goes or is renewed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await write_endpoints(self._foundation, self._live_servers)
            except StoreError as error:
                log.warning("the endpoints of the API could not be written, trying again: %s", error)
                self._changed.set()
                await self._foundation.clock.sleep(_RETRY_SECONDS)

    async def withdraw(self) -> None:
        """Remove the lease and the endpoints of this server, which stops. Errors are logged: the stop goes on."""
        try:
            async with asyncio.timeout(_WITHDRAW_SECONDS), self._turn:
                self._is_withdrawn = True
                try:
                    await self._foundation.store.delete(self._key, expected=None)
                except Conflict:
                    log.info("the master lease of this server had expired")
                await write_endpoints(self._foundation, self._live_servers)
        except (StoreError, TimeoutError) as error:
            log.warning("the master lease could not be removed and expires in %d s: %s", MASTER_LEASE_SECONDS, error)

    def _wake(self, event: CacheEvent) -> None:
        self._changed.set()

    async def _renew(self) -> None:
        async with self._turn:
            if self._is_withdrawn:
                return
            self._renewals += 1
            address, port = self._server
            lease = {
                "kind": "Endpoints",
                "apiVersion": "v1",
                "metadata": {"generation": self._renewals},
                "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": port}]}],
            }
            await self._foundation.store.put(self._key, orjson.dumps(lease), expected=None)

    def _live_servers(self) -> Iterable[Server]:
        """Return the servers with a lease. This one lives though its lease may have expired while etcd was away."""
        servers = set() if self._is_withdrawn else {self._server}
        for entry in self._foundation.fanout.cache(MASTER_LEASES).entries.values():
            for subset in entry.decode()["subsets"]:
                servers.add((subset["addresses"][0]["ip"], subset["ports"][0]["port"]))
        return servers
