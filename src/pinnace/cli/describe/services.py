"""Descriptions of Services with their endpoints, and of Ingresses with their classes."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.cli.describe.parts import NONE, UNSET, Description, describe_labels, heading, long_time
from pinnace.cli.kubectl.formats import format_value
from pinnace.client.client import Client
from pinnace.kinds.cells import format_labels
from pinnace.model import errors
from pinnace.model.objects import Object


async def service(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    spec = obj["spec"]
    heading(page, obj)
    describe_labels(page, obj)
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
        page.pair("LoadBalancer Ingress", ", ".join(_ingress(one) for one in ingress))
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
    page.events(events)
    return str(page)


def _ingress(one: Object) -> str:
    if not one.get("ip"):
        return str(one.get("hostname", ""))
    return f"{one['ip']} ({one['ipMode']})" if one.get("ipMode") else str(one["ip"])


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
    found = [place for one in slices for place in _places(one, port_name)]
    told = ",".join(found[:most])
    return told if len(found) <= most else f"{told} + {len(found) - most} more..."


def _places(one: Object, port_name: str) -> Iterable[str]:
    ready = [
        endpoint["addresses"][0]
        for endpoint in one.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ]
    if not one.get("ports"):
        yield from ready
    for port in one.get("ports") or ():
        if (port.get("name") or "") == port_name:
            yield from (f"[{at}]:{port['port']}" if ":" in at else f"{at}:{port['port']}" for at in ready)


def endpoints(page: Description, obj: Object) -> None:
    heading(page, obj)
    describe_labels(page, obj)
    page.line("Subsets:")
    for subset in obj.get("subsets") or ():
        for field, title in (("addresses", "Addresses"), ("notReadyAddresses", "NotReadyAddresses")):
            page.pair(title, ",".join(one["ip"] for one in subset.get(field) or ()) or NONE, 1)
        if subset.get("ports"):
            page.line("Ports:", 1)
            _ports(page, subset["ports"], level=2)
        page.line()


def endpoint_slice(page: Description, obj: Object) -> None:
    heading(page, obj)
    describe_labels(page, obj)
    page.pair("AddressType", obj.get("addressType", ""))
    page.line("Ports:" if obj.get("ports") else f"Ports: {UNSET}")
    if obj.get("ports"):
        _ports(page, obj["ports"], level=1)
    page.line("Endpoints:" if obj.get("endpoints") else f"Endpoints: {NONE}")
    for one in obj.get("endpoints") or ():
        ready, target = (one.get("conditions") or {}).get("ready"), one.get("targetRef")
        page.pair("- Addresses", ", ".join(one.get("addresses") or ()) or NONE, 1)
        page.line("Conditions:", 2)
        page.pair("Ready", UNSET if ready is None else format_value(ready), 3)
        page.pairs(
            ("Hostname", one.get("hostname", UNSET)),
            ("TargetRef", f"{target.get('kind', '')}/{target.get('name', '')}" if target else None),
            ("NodeName", one.get("nodeName", UNSET)),
            ("Zone", one.get("zone", UNSET)),
            level=2,
        )


def _ports(page: Description, ports: list[Object], *, level: int) -> None:
    rows = [(port.get("name") or UNSET, port.get("port", UNSET), port.get("protocol", "")) for port in ports]
    page.table(("Name", "Port", "Protocol"), rows, level=level)


# Ingresses


async def ingress(client: Client, obj: Object, events: list[Object] | None) -> str:
    page = Description()
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    namespace, default = metadata.get("namespace", ""), spec.get("defaultBackend")
    addresses = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    page.pair("Name", metadata["name"])
    page.labels("Labels", metadata.get("labels"))
    page.pair("Namespace", namespace)
    page.pair("Address", ",".join(sorted({one.get("ip") or one.get("hostname", "") for one in addresses} - {""})))
    page.pair("Ingress Class", spec.get("ingressClassName", NONE))
    otherwise = "<default>" if default is None else await _backend(client, namespace, default)
    page.pair("Default backend", otherwise)
    if spec.get("tls"):
        page.line("TLS:")
        for one in spec["tls"]:
            does = f"{one['secretName']} terminates" if one.get("secretName") else "SNI routes"
            page.line(f"{does} {','.join(one.get('hosts') or ())}", 1)
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
    page.events(events)
    return str(page)


def ingress_class(page: Description, obj: Object) -> None:
    spec = obj["spec"]
    heading(page, obj, namespaced=False)
    describe_labels(page, obj)
    page.pair("Controller", spec.get("controller", ""))
    chosen = spec.get("parameters")
    if chosen:
        page.line("Parameters:")
        page.pairs(("APIGroup", chosen.get("apiGroup")), ("Kind", chosen["kind"]), ("Name", chosen["name"]), level=1)


def service_range(page: Description, obj: Object) -> None:
    """Describe a ServiceCIDR."""
    heading(page, obj, namespaced=False)
    describe_labels(page, obj)
    page.pair("CIDRs", ", ".join(obj["spec"].get("cidrs") or ()))
    conditions = (obj.get("status") or {}).get("conditions") or ()
    if conditions:
        page.line("Status:")
        page.line("Conditions:")
        rows = [
            (one["type"], one["status"], long_time(one.get("lastTransitionTime")), one["reason"], one["message"])
            for one in conditions
        ]
        page.table(("Type", "Status", "LastTransitionTime", "Reason", "Message"), rows)


def address(page: Description, obj: Object) -> None:
    """Describe an IPAddress and the object that holds it."""
    heading(page, obj, namespaced=False)
    describe_labels(page, obj)
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
    told = f"{chosen['name']}:{number or name}"
    try:
        found = await client.get("v1/Service", chosen["name"], namespace=namespace)
    except errors.ApiError as error:
        return f"{told} (<error: {error.message}>)"
    named = [
        one.get("name", "")
        for one in found["spec"].get("ports") or ()
        if (number and number == one["port"]) or (name and name == one.get("name"))
    ]
    slices = await _endpoint_slices(client, namespace, chosen["name"])
    return f"{told} ({_endpoints(slices, named[-1] if named else '')})"
