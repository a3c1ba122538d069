"""Descriptions of Services with their endpoints, and of Ingresses with their classes."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.cli.describe.parts import (
    NONE,
    UNSET,
    Description,
    heading_with_labels,
    long_time,
)
from pinnace.cli.kubectl.formats import format_value
from pinnace.client.client import Client
from pinnace.kinds.cells import format_labels
from pinnace.model import errors
from pinnace.model.objects import Object


async def service(page: Description, obj: Object, client: Client) -> None:
    spec = obj["spec"]
    heading_with_labels(page, obj)
    page.pair("Selector", format_labels(spec.get("selector")))
    page.pair("Type", spec.get("type", ""))
    if spec.get("ipFamilyPolicy"):
        page.pair("IP Family Policy", spec["ipFamilyPolicy"])
    page.pair("IP Families", ",".join(spec.get("ipFamilies") or ()) or NONE)
    page.pair("IP", spec.get("clusterIP", ""))
    page.pair("IPs", ",".join(spec.get("clusterIPs") or ()) or NONE)
    for field, title in (("externalIPs", "External IPs"), ("loadBalancerIP", "Desired LoadBalancer IP")):
        if spec.get(field):
            page.pair(title, ",".join(spec[field]) if isinstance(spec[field], list) else spec[field])
    if spec.get("externalName"):
        page.pair("External Name", spec["externalName"])
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    if ingress:
        page.pair("LoadBalancer Ingress", ", ".join(_ingress(point) for point in ingress))
    slices = await _endpoint_slices(client, obj["metadata"]["namespace"], obj["metadata"]["name"])
    for port in spec.get("ports") or ():
        _port(page, port, slices)
    page.pair("Session Affinity", spec.get("sessionAffinity", ""))
    for field, title in (
        ("externalTrafficPolicy", "External Traffic Policy"),
        ("internalTrafficPolicy", "Internal Traffic Policy"),
        ("healthCheckNodePort", "HealthCheck NodePort"),
        ("loadBalancerSourceRanges", "LoadBalancer Source Ranges"),
        ("trafficDistribution", "Traffic Distribution"),
    ):
        if spec.get(field):
            page.pair(title, ",".join(spec[field]) if isinstance(spec[field], list) else spec[field])


def _ingress(ingress: Object) -> str:
    if not ingress.get("ip"):
        return str(ingress.get("hostname", ""))
    return f"{ingress['ip']} ({ingress['ipMode']})" if ingress.get("ipMode") else str(ingress["ip"])


def _port(page: Description, port: Object, slices: list[Object]) -> None:
    name, protocol = port.get("name") or UNSET, port.get("protocol", "")
    page.line(f"Port:\t{name}\t{port['port']}/{protocol}")
    page.pair("TargetPort", f"{port.get('targetPort', 0)}/{protocol}")
    if port.get("appProtocol"):
        page.pair("AppProtocol", port["appProtocol"])
    if port.get("nodePort"):
        page.line(f"NodePort:\t{name}\t{port['nodePort']}/{protocol}")
    page.pair("Endpoints", _endpoints(slices, port.get("name", "")))


async def _endpoint_slices(client: Client, namespace: str, service_name: str) -> list[Object]:
    try:
        return await client.list(
            "discovery.k8s.io/v1/EndpointSlice",
            namespace=namespace,
            labels=f"kubernetes.io/service-name={service_name}",
        )
    except errors.ApiError:
        return []


def _endpoints(slices: list[Object], port_name: str, *, most: int = 3) -> str:
    if not slices:
        return NONE
    places = [place for endpoint_slice in slices for place in _places(endpoint_slice, port_name)]
    listed = ",".join(places[:most])
    return listed if len(places) <= most else f"{listed} + {len(places) - most} more..."


def _places(endpoint_slice: Object, port_name: str) -> Iterable[str]:
    ready = [
        endpoint["addresses"][0]
        for endpoint in endpoint_slice.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ]
    if not endpoint_slice.get("ports"):
        yield from ready
    for port in endpoint_slice.get("ports") or ():
        if (port.get("name") or "") == port_name:
            yield from (f"[{at}]:{port['port']}" if ":" in at else f"{at}:{port['port']}" for at in ready)


def endpoints(page: Description, obj: Object) -> None:
    heading_with_labels(page, obj)
    page.line("Subsets:")
    for subset in obj.get("subsets") or ():
        for field, title in (("addresses", "Addresses"), ("notReadyAddresses", "NotReadyAddresses")):
            page.pair(title, ",".join(address["ip"] for address in subset.get(field) or ()) or NONE, 1)
        if subset.get("ports"):
            page.line("Ports:", 1)
            _ports(page, subset["ports"], level=2)
        page.line()


def endpoint_slice(page: Description, obj: Object) -> None:
    heading_with_labels(page, obj)
    page.pair("AddressType", obj.get("addressType", ""))
    page.line("Ports:" if obj.get("ports") else f"Ports: {UNSET}")
    if obj.get("ports"):
        _ports(page, obj["ports"], level=1)
    page.line("Endpoints:" if obj.get("endpoints") else f"Endpoints: {NONE}")
    for endpoint in obj.get("endpoints") or ():
        ready, target = (endpoint.get("conditions") or {}).get("ready"), endpoint.get("targetRef")
        page.pair("- Addresses", ", ".join(endpoint.get("addresses") or ()) or NONE, 1)
        page.line("Conditions:", 2)
        page.pair("Ready", UNSET if ready is None else format_value(ready), 3)
        page.pairs(
            ("Hostname", endpoint.get("hostname", UNSET)),
            ("TargetRef", f"{target.get('kind', '')}/{target.get('name', '')}" if target else None),
            ("NodeName", endpoint.get("nodeName", UNSET)),
            ("Zone", endpoint.get("zone", UNSET)),
            level=2,
        )


def _ports(page: Description, ports: list[Object], *, level: int) -> None:
    rows = [(port.get("name") or UNSET, port.get("port", UNSET), port.get("protocol", "")) for port in ports]
    page.table(("Name", "Port", "Protocol"), rows, level=level)


# Ingresses


async def ingress(page: Description, obj: Object, client: Client) -> None:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    namespace, default = metadata.get("namespace", ""), spec.get("defaultBackend")
    addresses = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    page.pair("Name", metadata["name"])
    page.labels("Labels", metadata.get("labels"))
    page.pair("Namespace", namespace)
    page.pair("Address", ",".join(sorted({entry.get("ip") or entry.get("hostname", "") for entry in addresses} - {""})))
    page.pair("Ingress Class", spec.get("ingressClassName", NONE))
    otherwise = "<default>" if default is None else await _backend(client, namespace, default)
    page.pair("Default backend", otherwise)
    if spec.get("tls"):
        page.line("TLS:")
        for entry in spec["tls"]:
            does = f"{entry['secretName']} terminates" if entry.get("secretName") else "SNI routes"
            page.line(f"{does} {','.join(entry.get('hosts') or ())}", 1)
    rows: list[tuple[str, ...]] = []
    for rule in spec.get("rules") or ():
        if rule.get("http"):
            rows.append((rule.get("host") or "*", ""))
            for path in rule["http"].get("paths") or ():
                # Paths stand one level deeper, in a column of their own.
                rows.append(("  ", f"{path.get('path', '')} ", await _backend(client, namespace, path["backend"])))
    page.line("Rules:")
    page.table(("Host", "Path", "Backends"), rows or [("*", "*", otherwise)])
    page.annotations("Annotations", metadata.get("annotations"))


def ingress_class(page: Description, obj: Object) -> None:
    spec = obj["spec"]
    heading_with_labels(page, obj, namespaced=False)
    page.pair("Controller", spec.get("controller", ""))
    chosen = spec.get("parameters")
    if chosen:
        page.line("Parameters:")
        page.pairs(("APIGroup", chosen.get("apiGroup")), ("Kind", chosen["kind"]), ("Name", chosen["name"]), level=1)


def service_range(page: Description, obj: Object) -> None:
    """Describe a ServiceCIDR."""
    heading_with_labels(page, obj, namespaced=False)
    page.pair("CIDRs", ", ".join(obj["spec"].get("cidrs") or ()))
    conditions = (obj.get("status") or {}).get("conditions") or ()
    if conditions:
        page.line("Status:")
        page.line("Conditions:")
        rows = [
            (
                condition["type"],
                condition["status"],
                long_time(condition.get("lastTransitionTime")),
                condition["reason"],
                condition["message"],
            )
            for condition in conditions
        ]
        page.table(("Type", "Status", "LastTransitionTime", "Reason", "Message"), rows)


def address(page: Description, obj: Object) -> None:
    """Describe an IPAddress and the object that holds it."""
    heading_with_labels(page, obj, namespaced=False)
    parent = obj["spec"].get("parentRef")
    if parent is not None:
        page.line("Parent Reference:")
        for field in ("group", "resource", "namespace", "name"):
            page.pair(field.title(), parent.get(field, ""), 1)


async def _backend(client: Client, namespace: str, backend: Object) -> str:
    """Return the target of requests: a service with its current endpoints, or an object of any kind."""
    chosen = backend.get("service")
    if not chosen:
        resource = backend.get("resource") or {}
        group, kind = resource.get("apiGroup", NONE), resource.get("kind", "")
        return f"APIGroup: {group}, Kind: {kind}, Name: {resource.get('name', '')}"
    port = chosen.get("port") or {}
    number, name = port.get("number"), port.get("name", "")
    target = f"{chosen['name']}:{number or name}"
    try:
        service = await client.get("v1/Service", chosen["name"], namespace=namespace)
    except errors.ApiError as error:
        return f"{target} (<error: {error.message}>)"
    named = [
        candidate.get("name", "")
        for candidate in service["spec"].get("ports") or ()
        if (number and number == candidate["port"]) or (name and name == candidate.get("name"))
    ]
    slices = await _endpoint_slices(client, namespace, chosen["name"])
    return f"{target} ({_endpoints(slices, named[-1] if named else '')})"
