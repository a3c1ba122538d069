"""The rows of ingresses, network policies, service CIDRs and IP addresses."""

from __future__ import annotations

from pinnace.kinds.networking import columns, conversion, ingresses, validation
from pinnace.kinds.rows import GA, STATUS, Row, old, on_request

GROUP = "networking.k8s.io"
_V1 = "networking.k8s.io/v1"

ROWS = (
    Row(
        group=GROUP,
        name="ClusterCIDR",
        plural="clustercidrs",
        short_names=("cc",),
        namespaced=False,
        versions=(on_request("v1alpha1"),),
    ),
    Row(
        group=GROUP,
        name="IngressClass",
        plural="ingressclasses",
        columns=columns.INGRESS_CLASS,
        namespaced=False,
        versions=(GA, old("v1beta1", deprecated="1.19", removed="1.22", replacement=_V1)),
        strategy=ingresses.INGRESS_CLASS,
    ),
    Row(
        group=GROUP,
        name="Ingress",
        plural="ingresses",
        columns=columns.INGRESS,
        short_names=("ing",),
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.19",
                removed="1.22",
                replacement=_V1,
                to_stored=conversion.ingress_to_v1,
                from_stored=conversion.ingress_from_v1,
                reshape=conversion.old_ingress,
            ),
            old(
                "v1beta1",
                group="extensions",
                deprecated="1.14",
                removed="1.22",
                replacement=_V1,
                to_stored=conversion.ingress_to_v1,
                from_stored=conversion.ingress_from_v1,
                reshape=conversion.old_ingress,
            ),
        ),
        subresources=(STATUS,),
        strategy=ingresses.INGRESS,
    ),
    Row(
        group=GROUP,
        name="IPAddress",
        plural="ipaddresses",
        columns=columns.IP_ADDRESS,
        short_names=("ip",),
        namespaced=False,
        versions=(GA, on_request("v1beta1", deprecated="1.34", removed="1.37"), on_request("v1alpha1")),
        strategy=validation.IP_ADDRESS,
    ),
    Row(
        group=GROUP,
        name="NetworkPolicy",
        plural="networkpolicies",
        columns=columns.NETWORK_POLICY,
        short_names=("netpol",),
        versions=(GA, old("v1beta1", group="extensions", deprecated="1.9", removed="1.16", replacement=_V1)),
        strategy=validation.NETWORK_POLICY,
    ),
    Row(
        group=GROUP,
        name="ServiceCIDR",
        plural="servicecidrs",
        columns=columns.SERVICE_CIDR,
        namespaced=False,
        versions=(GA, on_request("v1beta1", deprecated="1.34", removed="1.37"), on_request("v1alpha1")),
        subresources=(STATUS,),
        strategy=validation.SERVICE_CIDR,
    ),
)
