"""The endpoints behind each Service address, as a function of Services and EndpointSlices.

    index = ServiceIndex(node="worker-1")
    index.set_service(service); index.set_slice(endpoint_slice)
    for frontend, backends in index.take_changes().items(): ...

The result does not depend on the order of the calls: two Services that claim one address and port are ordered by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from pinnace.model.objects import Key, key_of
from pinnace.model.typed_objects import Endpoint as EndpointObject
from pinnace.model.typed_objects import EndpointSlice, Service, ServiceSpec
from pinnace.network.families import IPV4, IPV6, IpFamily, family_of

SERVICE_NAME = "kubernetes.io/service-name"
PROXY_NAME = "service.kubernetes.io/service-proxy-name"
ANY_ADDRESSES = (IPV4.any_address, IPV6.any_address)
"""The addresses of frontends that are node ports: any address of the node, by family."""
_API_SERVER = Key("default", "kubernetes")
"""The Service whose endpoints may be on the machine's loopback: the API server writes them itself."""
_DEFAULT_AFFINITY_SECONDS = 10800
_THIS_NETWORK = ip_network("0.0.0.0/8")
_FIRST_GROUP = int(IPv4Address("224.0.0.0"))
"""The first address of groups. Those behind them are reserved; the last one means all hosts."""
_IPV4_IN_IPV6 = [ip_network(text) for text in ("::/96", "::ffff:0:0/96", "64:ff9b::/96")]
MOST_EXTERNAL = 10_000
"""How many pairs of an external address and a port a Service may have. Further addresses lead nowhere."""

MOST_SOURCES = 1_000
"""How many ranges of clients a load balancer may have. Clients in further ones are refused."""


class Frontend(NamedTuple):
    """The address that clients of a Service use."""

    address: str
    protocol: str
    port: int


class Endpoint(NamedTuple):
    address: str
    port: int


class Backends(NamedTuple):
    """The endpoints of a frontend, in order, at least one."""

    endpoints: tuple[Endpoint, ...]
    affinity_seconds: int = 0
    """How long a client keeps its endpoint; 0 without session affinity."""
    sources: tuple[IPv4Network | IPv6Network, ...] = ()
    """The ranges whose clients may use the frontend; empty for all."""

    def admits(self, client: str) -> bool:
        return not self.sources or any(ip_address(client) in network for network in self.sources)


class HealthCheck(NamedTuple):
    """The port on which a load balancer asks whether this node has endpoints of a Service, and their number."""

    port: int
    endpoints: int


ServiceTable = Mapping[Frontend, Backends]
TableChange = dict[Frontend, Backends | None]
"""The new backends of each frontend that has changed; None for a frontend without endpoints."""


@dataclass(frozen=True, slots=True)
class _SliceEndpoint:
    address: str
    node: str
    is_ready: bool
    is_serving: bool


@dataclass(frozen=True, slots=True)
class _Slice:
    family: IpFamily
    ports: tuple[tuple[str, str, int], ...]
    """The name, protocol and number of each port."""
    endpoints: tuple[_SliceEndpoint, ...]


class ServiceIndex:
    """Keeps the table up to date object by object. Only what changed is computed again."""

    def __init__(self, *, node: str, networks: Sequence[str] = (), node_addresses: Sequence[str] = ()) -> None:
        """No Service gets the traffic of others by an external address in one of the networks of the cluster.

        The addresses of the node are allowed.
        """
        self._node = node
        self._networks = [ip_network(network) for network in networks]
        self._node_addresses = node_addresses
        self._services: dict[Key, Service] = {}
        self._slices: dict[Key, dict[str, _Slice]] = {}
        self._claims: dict[Frontend, dict[Key, Backends]] = {}
        self._of_service: dict[Key, frozenset[Frontend]] = {}
        self._dirty: set[Key] = set()
        self.table: dict[Frontend, Backends] = {}
        self.health_checks: dict[Key, HealthCheck] = {}

    def set_service(self, service: Service) -> None:
        key = key_of(service)
        self._services[key] = service
        self._dirty.add(key)

    def remove_service(self, key: Key) -> None:
        self._services.pop(key, None)
        self._dirty.add(key)

    def set_slice(self, endpoint_slice: EndpointSlice) -> None:
        owner = service_of(endpoint_slice)
        parsed = _parse_slice(endpoint_slice, may_be_loopback=owner == _API_SERVER)
        self._slices.setdefault(owner, {})[endpoint_slice["metadata"]["name"]] = parsed
        self._dirty.add(owner)

    def remove_slice(self, endpoint_slice: EndpointSlice) -> None:
        owner = service_of(endpoint_slice)
        slices = self._slices.get(owner, {})
        slices.pop(endpoint_slice["metadata"]["name"], None)
        if not slices:
            self._slices.pop(owner, None)
        self._dirty.add(owner)

    def take_changes(self) -> TableChange:
        """Return what has changed since the last call, and bring `table` up to date."""
        dirty, self._dirty = self._dirty, set()
        touched: set[Frontend] = set()
        for key in dirty:
            touched |= self._claim(key)
        change: TableChange = {}
        for frontend in touched:
            claims = self._claims.get(frontend)
            wanted = claims[min(claims)] if claims else None
            if wanted != self.table.get(frontend):
                change[frontend] = wanted
                if wanted is None:
                    del self.table[frontend]
                else:
                    self.table[frontend] = wanted
        return change

    def _claim(self, key: Key) -> set[Frontend]:
        """Compute the frontends of one Service; return those that it has, or had."""
        service = self._services.get(key)
        slices = [parsed for _, parsed in sorted(self._slices.get(key, {}).items())]
        claims = {}
        if service is not None:
            claims = {
                frontend: to
                for frontend, to in _claims_of(service, slices, self._node)
                if self._may_claim(service, frontend)
            }
        before = self._of_service.pop(key, frozenset())
        for frontend in before - claims.keys():
            others = self._claims[frontend]
            del others[key]
            if not others:
                del self._claims[frontend]
        for frontend, backends in claims.items():
            self._claims.setdefault(frontend, {})[key] = backends
        if claims:
            self._of_service[key] = frozenset(claims)
        self.health_checks.pop(key, None)
        if service is not None and (port := _health_check_port(service)):
            own = [slice_ for slice_ in slices if slice_.family is _families_of(service)[0]]
            self.health_checks[key] = HealthCheck(port, _count_local(own, self._node))
        return set(before) | claims.keys()

    def _may_claim(self, service: Service, frontend: Frontend) -> bool:
        address = frontend.address
        if address in ANY_ADDRESSES or address in self._node_addresses or address in _cluster_ips(service):
            return True
        return not any(ip_address(address) in network for network in self._networks)


def table_of(services: Sequence[Service], slices: Sequence[EndpointSlice], *, node: str) -> ServiceTable:
    """Return the whole table of a node."""
    index = ServiceIndex(node=node)
    for service in services:
        index.set_service(service)
    for endpoint_slice in slices:
        index.set_slice(endpoint_slice)
    index.take_changes()
    return index.table


def service_of(endpoint_slice: EndpointSlice) -> Key:
    """Return the key of the Service that an EndpointSlice belongs to; its name is empty if there is none."""
    metadata = endpoint_slice["metadata"]
    return Key(metadata.get("namespace", ""), (metadata.get("labels") or {}).get(SERVICE_NAME, ""))


def is_proxied(service: Service) -> bool:
    """Whether the Service has an address that leads to its endpoints."""
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName" or spec.get("clusterIP", "") in ("", "None"):
        return False
    return PROXY_NAME not in (service["metadata"].get("labels") or {})


def _claims_of(service: Service, slices: Sequence[_Slice], node: str) -> Iterator[tuple[Frontend, Backends]]:
    if not is_proxied(service):
        return
    families = _families_of(service)
    for family in families:
        own = [slice_ for slice_ in slices if slice_.family is family]
        if not own and len(families) == 1:
            # The API server listens on IPv4 loopback, also if its Service has an IPv6 address: a proxy leads there.
            own = [
                slice_ for slice_ in slices if all(ip_address(place.address).is_loopback for place in slice_.endpoints)
            ]
        yield from _claims_of_family(service, own, node, family)


def _claims_of_family(
    service: Service, slices: Sequence[_Slice], node: str, family: IpFamily
) -> Iterator[tuple[Frontend, Backends]]:
    """Yield the frontends of one family."""
    spec = service["spec"]
    affinity = _affinity_of(spec)
    inside = spec.get("internalTrafficPolicy") == "Local"
    outside = spec.get("externalTrafficPolicy") == "Local"
    external = [address for address in _external_addresses(service) if _leads_to(family, address, service)]
    del external[MOST_EXTERNAL // max(1, len(spec.get("ports") or ())) :]
    balanced, sources = set(_balanced_addresses(service)), _sources_of(spec, family)
    offers: dict[tuple[str, str], list[tuple[_Slice, int]]] = {}
    for slice_ in slices:
        for name, protocol, number in slice_.ports:
            offers.setdefault((name, protocol), []).append((slice_, number))
    for port in spec.get("ports") or ():
        protocol, number = port.get("protocol", "TCP"), port["port"]
        offered = offers.get((port.get("name", ""), protocol), ())
        everywhere = _choose(offered, "")
        here = _choose(offered, node) if inside or outside else ()
        if within := here if inside else everywhere:
            for address in _cluster_ips(service):
                if _is_of(family, address):
                    yield Frontend(address, protocol, number), Backends(within, affinity)
        if beyond := here if outside else everywhere:
            for address in external:
                limits = sources if address in balanced else ()
                yield Frontend(address, protocol, number), Backends(beyond, affinity, limits)
            if port.get("nodePort"):
                yield Frontend(family.any_address, protocol, port["nodePort"]), Backends(beyond, affinity)


def _cluster_ips(service: Service) -> Sequence[str]:
    return service["spec"].get("clusterIPs") or [service["spec"]["clusterIP"]]


def _families_of(service: Service) -> list[IpFamily]:
    """Return the families of the Service's own addresses, its default one first."""
    return list(dict.fromkeys(map(family_of, _cluster_ips(service))))


def _health_check_port(service: Service) -> int:
    """Return the health-check node port of a Service whose external traffic stays on the node; 0 for none."""
    spec = service["spec"]
    if not is_proxied(service) or spec.get("type") != "LoadBalancer" or spec.get("externalTrafficPolicy") != "Local":
        return 0
    return int(spec.get("healthCheckNodePort") or 0)


def _count_local(slices: Sequence[_Slice], node: str) -> int:
    return len(
        {
            endpoint.address
            for part in slices
            for endpoint in part.endpoints
            if endpoint.node == node and endpoint.is_ready
        }
    )


def _external_addresses(service: Service) -> Iterator[str]:
    for address in service["spec"].get("externalIPs") or ():
        if (_is_of(IPV4, address) or _is_of(IPV6, address)) and not _is_special(address):
            yield address
    yield from _balanced_addresses(service)


def _balanced_addresses(service: Service) -> Iterator[str]:
    """Yield the addresses of the load balancer, to which the node itself leads."""
    for ingress in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
        if ingress.get("ipMode") != "Proxy":
            yield ingress.get("ip", "")


def _sources_of(spec: ServiceSpec, family: IpFamily) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return the ranges whose clients may use the load balancer: all, if the family has none, as in Kubernetes."""
    stated = spec.get("loadBalancerSourceRanges") or () if spec.get("type") == "LoadBalancer" else ()
    networks = (ip_network(text.strip(), strict=False) for text in stated)
    return tuple(network for network in networks if network.version == ip_address(family.any_address).version)[
        :MOST_SOURCES
    ]


def _choose(offered: Sequence[tuple[_Slice, int]], node: str) -> tuple[Endpoint, ...]:
    """The endpoints that are ready, of one node if it is named; if none is, those that serve while they terminate."""
    ready: set[Endpoint] = set()
    ending: set[Endpoint] = set()
    for slice_, number in offered:
        for endpoint in slice_.endpoints:
            if node and endpoint.node != node:
                continue
            if endpoint.is_ready:
                ready.add(Endpoint(endpoint.address, number))
            elif endpoint.is_serving:
                ending.add(Endpoint(endpoint.address, number))
    return tuple(sorted(ready or ending))


def _affinity_of(spec: ServiceSpec) -> int:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0
    config = ((spec.get("sessionAffinityConfig") or {}).get("clientIP")) or {}
    return int(config.get("timeoutSeconds") or _DEFAULT_AFFINITY_SECONDS)


def _parse_slice(endpoint_slice: EndpointSlice, *, may_be_loopback: bool) -> _Slice:
    family = IPV6 if endpoint_slice.get("addressType") == "IPv6" else IPV4
    if endpoint_slice.get("addressType") not in ("IPv4", "IPv6"):
        return _Slice(family, (), ())
    ports = tuple(
        (port.get("name") or "", port.get("protocol") or "TCP", port["port"])
        for port in endpoint_slice.get("ports") or ()
        if port.get("port")
    )
    endpoints = _parse_endpoints(endpoint_slice.get("endpoints") or (), family)
    allowed = [
        endpoint for endpoint in endpoints if _may_be_endpoint(endpoint.address, may_be_loopback=may_be_loopback)
    ]
    return _Slice(family, ports, tuple(allowed))


def _may_be_endpoint(address: str, *, may_be_loopback: bool) -> bool:
    return not _is_special(address) or (may_be_loopback and ip_address(address).is_loopback)


def _is_special(address: str) -> bool:
    """Whether an address is of this machine or link, of a group or of no host: no Service takes or sends traffic there.

    The API checks it too; the node relies on itself. An IPv6 address that contains one of IPv4 means the machine's own
    IPv4 network to a socket.
    """
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address):
        return (
            any(parsed in network for network in _IPV4_IN_IPV6)
            or parsed.is_loopback
            or parsed.is_link_local
            or parsed.is_multicast
        )
    return parsed in _THIS_NETWORK or parsed.is_loopback or parsed.is_link_local or int(parsed) >= _FIRST_GROUP


def _parse_endpoints(endpoints: Sequence[EndpointObject], family: IpFamily) -> Iterator[_SliceEndpoint]:
    for endpoint in endpoints:
        conditions = endpoint.get("conditions") or {}
        is_ready = conditions.get("ready") is not False
        serving = conditions.get("serving")
        is_serving = is_ready if serving is None else bool(serving)
        for address in (endpoint.get("addresses") or ())[:1]:
            if _is_of(family, address):
                is_ending = bool(conditions.get("terminating"))
                yield _SliceEndpoint(address, endpoint.get("nodeName") or "", is_ready, is_serving and is_ending)


def _leads_to(family: IpFamily, address: str, service: Service) -> bool:
    """Whether an external address is one of a family of the Service.

    Linux has a single IPv6 loopback address, so the load balancer of an IPv6 Service has an IPv4 one on this machine:
    the proxy behind it connects the families.
    """
    if _is_of(family, address):
        return True
    is_only = _families_of(service) == [family]
    return is_only and _is_of(IPV4, address) and ip_address(address).is_loopback


def _is_of(family: IpFamily, address: str) -> bool:
    try:
        family.pack(address)
    except OSError:
        return False
    return True
