"""The plural and the scope of a kind, by its class or by Kubernetes' rules, without asking a server."""

from __future__ import annotations

from typing import cast

from pinnace.client.mapping import KindLike, kind_from
from pinnace.sdk.resources.custom_resource import AnyResource, is_resource_class, plural_of

_PLURALS = {"Endpoints": "endpoints"}
_RBAC = "rbac.authorization.k8s.io"
CLUSTER_WIDE = frozenset(
    [
        *(("", plural) for plural in ("namespaces", "nodes", "persistentvolumes")),
        *((_RBAC, plural) for plural in ("clusterroles", "clusterrolebindings")),
        *(("storage.k8s.io", plural) for plural in ("storageclasses", "csidrivers", "csinodes", "volumeattachments")),
        *(
            ("admissionregistration.k8s.io", plural)
            for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        ),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("networking.k8s.io", "ingressclasses"),
        ("node.k8s.io", "runtimeclasses"),
        ("scheduling.k8s.io", "priorityclasses"),
    ]
)
"""Built-in resources outside of namespaces that operators use: a Role cannot allow them."""


def plural_like(kind: KindLike) -> str:
    """Return the plural of a kind: the one its class declares, or the one that Kubernetes' naming rule gives."""
    if is_resource_class(kind):
        return cast(type[AnyResource], kind).declared.plural
    name = kind_from(kind).name
    return _PLURALS.get(name) or plural_of(name.lower())


def is_namespaced(kind: KindLike) -> bool:
    """Return whether the objects of a kind are in namespaces, as far as that is known."""
    if is_resource_class(kind):
        return cast(type[AnyResource], kind).declared.namespaced
    return (kind_from(kind).group, plural_like(kind)) not in CLUSTER_WIDE
