"""The manifests that run a custom scheduler in a real cluster."""

from __future__ import annotations

from pinnace.model.objects import Object
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.installation.manifests import DeploymentOptions, binding_of, roles, workload

_ROLES = ("system:kube-scheduler", "system:volume-scheduler")
"""Kubernetes' own roles of schedulers: to watch what they read, bind pods and write events."""


def scheduler_roles(name: str, place: DeploymentOptions) -> list[Object]:
    """Return a ServiceAccount with the permissions of kube-scheduler and of its own lease."""
    account = {"kind": "ServiceAccount", "name": name, "namespace": place.namespace}
    own = [obj for obj in roles(Declarations(name=name), place) if not obj["kind"].startswith("Cluster")]
    return [
        *own,
        *(
            binding_of(
                "ClusterRoleBinding", "ClusterRole", {"name": f"{name}-{role.rpartition(':')[2]}"}, account, to=role
            )
            for role in _ROLES
        ),
    ]


def scheduler_workload(name: str, place: DeploymentOptions) -> list[Object]:
    """Return the Deployment."""
    return workload(Declarations(name=name), place)
