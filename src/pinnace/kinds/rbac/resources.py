"""The rows of roles and role bindings."""

from __future__ import annotations

from pinnace.kinds.rbac import columns, validation
from pinnace.kinds.rows import GA, Row, old

GROUP = "rbac.authorization.k8s.io"
_VERSIONS = (GA, old("v1beta1", deprecated="1.17", removed="1.22", replacement="rbac.authorization.k8s.io/v1"))

ROWS = (
    Row(
        group=GROUP,
        name="ClusterRoleBinding",
        plural="clusterrolebindings",
        columns=columns.CLUSTER_ROLE_BINDING,
        namespaced=False,
        versions=_VERSIONS,
        strategy=validation.CLUSTER_ROLE_BINDING,
    ),
    Row(
        group=GROUP,
        name="ClusterRole",
        plural="clusterroles",
        namespaced=False,
        versions=_VERSIONS,
        strategy=validation.CLUSTER_ROLE,
    ),
    Row(
        group=GROUP,
        name="RoleBinding",
        plural="rolebindings",
        columns=columns.ROLE_BINDING,
        versions=_VERSIONS,
        strategy=validation.ROLE_BINDING,
    ),
    Row(group=GROUP, name="Role", plural="roles", versions=_VERSIONS, strategy=validation.ROLE),
)
