"""The records of one Service, as Kubernetes' DNS specification wants them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from pinnace.model.objects import Object
from pinnace.network.dns.wire import RecordType, address_data, encode_name, service_data
from pinnace.network.dns.zone import DnsRecord

_WEIGHT = 100


def records_of(service: Object, slices: Sequence[Object], *, domain: str = "cluster.local") -> Iterator[DnsRecord]:
    """Yield the records of a Service and, if it has no address of its own, of its endpoints."""
    metadata, spec = service["metadata"], service.get("spec") or {}
    name = f"{metadata['name']}.{metadata['namespace']}.svc.{domain}"
    if spec.get("type") == "ExternalName":
        target = (spec.get("externalName") or "").rstrip(".").lower()
        if target:
            yield DnsRecord(name, RecordType.CNAME, encode_name(target), target)
    elif spec.get("clusterIP") == "None":
        yield from _headless(name, slices, publishes_all=bool(spec.get("publishNotReadyAddresses")))
    else:
        yield from _cluster_ip(name, spec)


def _cluster_ip(name: str, spec: Object) -> Iterator[DnsRecord]:
    addresses = [one for one in spec.get("clusterIPs") or [spec.get("clusterIP", "")] if one]
    for address in addresses:
        yield _address(name, address)
        yield _pointer(address, name)
    for port in spec.get("ports") or () if addresses else ():
        if port.get("name"):
            yield _service(name, port["name"], port.get("protocol", "TCP"), port["port"], name)


def _headless(name: str, slices: Sequence[Object], *, publishes_all: bool) -> Iterator[DnsRecord]:
    seen: set[DnsRecord] = set()
    for one in slices:
        for record in _of_slice(name, one, publishes_all=publishes_all):
            if record not in seen:
                seen.add(record)
                yield record


def _of_slice(name: str, one: Object, *, publishes_all: bool) -> Iterator[DnsRecord]:
    for endpoint in one.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready") is False and not publishes_all:
            continue
        for address in endpoint.get("addresses") or ():
            host = endpoint.get("hostname") or ip_address(address).exploded.replace(".", "-").replace(":", "-")
            own = f"{host}.{name}"
            yield _address(name, address)
            yield _address(own, address)
            if endpoint.get("hostname"):
                yield _pointer(address, own)
            for port in one.get("ports") or ():
                if port.get("name") and port.get("port"):
                    yield _service(name, port["name"], port.get("protocol") or "TCP", port["port"], own)


def _address(name: str, address: str) -> DnsRecord:
    return DnsRecord(name, RecordType.AAAA if ":" in address else RecordType.A, address_data(address))


def _pointer(address: str, name: str) -> DnsRecord:
    return DnsRecord(ip_address(address).reverse_pointer, RecordType.PTR, encode_name(name), name)


def _service(name: str, port: str, protocol: str, number: int, target: str) -> DnsRecord:
    data = service_data(number, target, weight=_WEIGHT)
    return DnsRecord(f"_{port}._{protocol.lower()}.{name}", RecordType.SRV, data)
