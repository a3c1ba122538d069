"""The rows of ingresses, network policies, service CIDRs and IP addresses, and their columns."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from pinnace.kinds.cells import (
    AGE,
    NAME,
    NONE,
    at,
    reach,
    selector_at,
    string,
    text,
)
from pinnace.kinds.networking import ingresses, validation
from pinnace.kinds.rows import GA, STATUS, Row, old, on_request
from pinnace.kinds.services.columns import load_balancer_addresses
from pinnace.model.resources import Column
from pinnace.model.typed_objects import Ingress, IngressClass, IPAddress

_NETWORKING = "io.k8s.api.networking.v1"


def _hosts(ingress: Ingress, now: datetime) -> str:
    rules = reach(ingress, "spec", "rules") or ()
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == 3:
            return f"{','.join(hosts)} + {len(rules) - 3} more..."
        if rule.get("host"):
            hosts.append(rule["host"])
    return ",".join(hosts) or "*"


INGRESS = (
    NAME,
    string(
        "Class",
        "The name of the IngressClass resource that should be used for additional configuration",
        at("spec.ingressClassName", NONE),
    ),
    string("Hosts", "Hosts that incoming requests are matched against before the ingress rule", _hosts),
    string(
        "Address",
        "Address is a list containing ingress points for the load-balancer",
        lambda obj, now: load_balancer_addresses(obj),
    ),
    string(
        "Ports",
        "Ports of TLS configurations that open",
        lambda obj, now: "80, 443" if reach(obj, "spec", "tls") else "80",
    ),
    AGE,
)


def _class_name(ingress_class: IngressClass, now: datetime) -> str:
    annotations = reach(ingress_class, "metadata", "annotations") or {}
    is_default = annotations.get("ingressclass.kubernetes.io/is-default-class") == "true"
    return f"{NAME.value(ingress_class, now)}{' (default)' if is_default else ''}"


def _parameters(ingress_class: IngressClass, now: datetime) -> str:
    parameters = reach(ingress_class, "spec", "parameters")
    if parameters is None:
        return NONE
    group = parameters.get("apiGroup")
    kind = text(parameters.get("kind"))
    return f"{kind if group is None else f'{kind}.{group}'}/{text(parameters.get('name'))}"


INGRESS_CLASS = (
    Column("Name", "string", NAME.description, _class_name, format="name"),
    string("Controller", "Controller that is responsible for handling this class", at("spec.controller")),
    string("Parameters", "A reference to a resource with additional parameters", _parameters),
    AGE,
)
NETWORK_POLICY = (
    NAME,
    string("Pod-Selector", f"{_NETWORKING}.NetworkPolicySpec.podSelector", selector_at("spec.podSelector")),
    AGE,
)
SERVICE_CIDR = (
    NAME,
    string(
        "CIDRs", f"{_NETWORKING}.ServiceCIDRSpec.cidrs", lambda obj, now: ",".join(reach(obj, "spec", "cidrs") or ())
    ),
    AGE,
)


def _parent(address: IPAddress, now: datetime) -> str:
    parent = reach(address, "spec", "parentRef")
    if parent is None:
        return NONE
    resource, group = text(parent.get("resource")), parent.get("group")
    where = (f"{resource}.{group}" if group else resource).lower()
    return "/".join(part for part in (where, parent.get("namespace"), text(parent.get("name"))) if part)


IP_ADDRESS = (
    NAME,
    string("ParentRef", f"{_NETWORKING}.IPAddressSpec.parentRef", _parent),
    replace(AGE, has_title=False),
)


GROUP = "networking.k8s.io"
_V1 = "networking.k8s.io/v1"

_row = partial(Row, group=GROUP)
_old_ingress = partial(
    old,
    "v1beta1",
    removed="1.22",
    replacement=_V1,
    to_stored=ingresses.ingress_to_v1,
    from_stored=ingresses.ingress_from_v1,
    reshape=ingresses.old_ingress,
)

ROWS = (
    _row(
        name="ClusterCIDR",
        plural="clustercidrs",
        short_names=("cc",),
        namespaced=False,
        versions=(on_request("v1alpha1"),),
    ),
    _row(
        name="IngressClass",
        plural="ingressclasses",
        columns=INGRESS_CLASS,
        namespaced=False,
        versions=(GA, old("v1beta1", deprecated="1.19", removed="1.22", replacement=_V1)),
        strategy=ingresses.INGRESS_CLASS,
    ),
    _row(
        name="Ingress",
        plural="ingresses",
        columns=INGRESS,
        short_names=("ing",),
        versions=(
            GA,
            _old_ingress(deprecated="1.19"),
            _old_ingress(group="extensions", deprecated="1.14"),
        ),
        subresources=(STATUS,),
        strategy=ingresses.INGRESS,
    ),
    _row(
        name="IPAddress",
        plural="ipaddresses",
        columns=IP_ADDRESS,
        short_names=("ip",),
        namespaced=False,
        versions=(GA, on_request("v1beta1", deprecated="1.34", removed="1.37"), on_request("v1alpha1")),
        strategy=validation.IP_ADDRESS,
    ),
    _row(
        name="NetworkPolicy",
        plural="networkpolicies",
        columns=NETWORK_POLICY,
        short_names=("netpol",),
        versions=(GA, old("v1beta1", group="extensions", deprecated="1.9", removed="1.16", replacement=_V1)),
        strategy=validation.NETWORK_POLICY,
    ),
    _row(
        name="ServiceCIDR",
        plural="servicecidrs",
        columns=SERVICE_CIDR,
        namespaced=False,
        versions=(GA, on_request("v1beta1", deprecated="1.34", removed="1.37"), on_request("v1alpha1")),
        subresources=(STATUS,),
        strategy=validation.SERVICE_CIDR,
    ),
)
