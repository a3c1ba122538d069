"""The endpoints of the kubernetes Service: the Endpoints and EndpointSlices that name the servers of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import ip_address
from itertools import takewhile
from typing import Protocol, TypeAlias

from pinnace.cluster.status.managers import entry as managed_entry
from pinnace.cluster.status.managers import fields_of
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Kind, Object, new_uid
from pinnace.model.resources import Registry, Resource
from pinnace.server.cache.fanout import Fanout
from pinnace.server.write.versions import encode
from pinnace.store.store import Conflict, Store

NAMESPACE, SERVICE = "default", "kubernetes"
_FURTHER = f"{SERVICE}-ipv"
"""The beginning of the names of all slices but the first."""
_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice")
_CONTENT = ("subsets", "addressType", "endpoints", "ports")

Server: TypeAlias = tuple[str, int]
"""The address and the port of one server."""


class EndpointsTarget(Protocol):
    """A control plane whose objects are loaded."""

    @property
    def registry(self) -> Registry: ...
    @property
    def fanout(self) -> Fanout: ...
    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...


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


async def write_endpoints(plane: EndpointsTarget, servers: Callable[[], Iterable[Server]]) -> None:
    """Let the Endpoints and EndpointSlices of the Service name these servers and no others.

    They are stored without validation, which refuses the loopback addresses that the API has here. If another server
    writes them at the same time, begin again with the servers that there are then.
    """
    while True:
        try:
            return await _write_all(plane, api_endpoints(servers()))
        except Conflict:
            continue


async def _write_all(plane: EndpointsTarget, wanted: list[Object]) -> None:
    for obj in wanted:
        resource = plane.registry.of_kind(Kind.parse(obj["apiVersion"], obj["kind"]))
        if resource is not None:
            await _write(plane, resource, obj)
    slices = plane.registry.of_kind(_SLICE)
    if slices is not None:
        await _delete_slices(plane, slices, keep={f"{NAMESPACE}/{obj['metadata']['name']}" for obj in wanted})


async def _write(plane: EndpointsTarget, resource: Resource, obj: Object) -> None:
    key = f"{NAMESPACE}/{obj['metadata']['name']}"
    entry = plane.fanout.cache(resource.prefix).entries.get(key)
    present = entry.decode() if entry is not None else {"metadata": {}}
    known = present["metadata"]
    if known.get("labels") == obj["metadata"]["labels"] and all(present.get(n) == obj.get(n) for n in _CONTENT):
        return
    made = {"uid": new_uid(), "creationTimestamp": to_rfc3339(plane.clock.now())}
    obj["metadata"] = {**obj["metadata"], **made, **{name: known[name] for name in made if name in known}}
    obj["metadata"]["managedFields"] = [managed_entry(obj, fields_of(obj, _CONTENT), plane.clock.now())]
    if obj["kind"] == _SLICE.name:
        obj["metadata"]["generation"] = known.get("generation", 0) + 1
    revision = entry.revision if entry is not None else 0
    await plane.store.put(resource.prefix + key, encode(obj, resource), expected=revision)


async def _delete_slices(plane: EndpointsTarget, slices: Resource, *, keep: set[str]) -> None:
    cache, beginning = plane.fanout.cache(slices.prefix), f"{NAMESPACE}/{_FURTHER}"
    for key in takewhile(lambda key: key.startswith(beginning), cache.keys_of(NAMESPACE, after=beginning)):
        if key not in keep:
            await plane.store.delete(slices.prefix + key, expected=cache.entries[key].revision)


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
