"""The manifests that run a custom scheduler in a real cluster."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.model.objects import Object
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.handlers.permissions import Permission
from pinnace.sdk.installation.manifests import DeploymentOptions, binding_of, roles, workload

_RBAC = {"apiVersion": "rbac.authorization.k8s.io/v1"}
_ROLES = ("system:kube-scheduler", "system:volume-scheduler")
"""Kubernetes' own roles of schedulers: to watch what they read, bind pods and write events."""


def scheduler_roles(name: str, place: DeploymentOptions, permissions: Sequence[Permission] = ()) -> list[Object]:
    """Return a ServiceAccount with the permissions of kube-scheduler, of its own lease, and further ones."""
    account = {"kind": "ServiceAccount", "name": name, "namespace": place.namespace}
    own = [obj for obj in roles(Declarations(name=name), place) if not obj["kind"].startswith("Cluster")]
    further = [
        {**_RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule.to_rule() for rule in permissions]},
        binding_of("ClusterRoleBinding", "ClusterRole", {"name": name}, account),
    ]
    return [
        *own,
        *(further if permissions else ()),
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
