"""The labels that a kubelet may set on its own Node."""

from __future__ import annotations

_OWN_LABELS = frozenset(
    (
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    )
)
_OWN_LABEL_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def is_kubelet_label(name: str) -> bool:
    """Whether a kubelet may set and change a label. Other labels of Kubernetes' domains are for administrators."""
    domain = name.partition("/")[0] if "/" in name else ""
    if _is_within(domain, "node-restriction.kubernetes.io"):
        return False
    if not _is_within(domain, "kubernetes.io") and not _is_within(domain, "k8s.io"):
        return True
    return name in _OWN_LABELS or any(_is_within(domain, own) for own in _OWN_LABEL_DOMAINS)


def _is_within(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")
