"""The columns of role bindings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import AGE, NAME, string, text
from pinnace.model.objects import Object
from pinnace.model.resources import Column


def _role(binding: Object, now: datetime) -> str:
    role = binding.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(kind: str) -> Any:
    def value(binding: Object, now: datetime) -> str:
        return ", ".join(_subject(found) for found in binding.get("subjects") or () if found.get("kind") == kind)

    return value


def _subject(subject: Object) -> str:
    name = text(subject.get("name"))
    return f"{subject.get('namespace', '')}/{name}" if subject.get("kind") == "ServiceAccount" else name


def _binding_columns(called: str, said_of_role: str) -> tuple[Column, ...]:
    return (
        NAME,
        string("Role", said_of_role, _role),
        AGE,
        string("Users", f"Users in the {called}", _subjects("User"), wide=True),
        string("Groups", f"Groups in the {called}", _subjects("Group"), wide=True),
        string("ServiceAccounts", f"ServiceAccounts in the {called}", _subjects("ServiceAccount"), wide=True),
    )


# Kubernetes describes roles and signers in the words of v1beta1, which it no longer serves.
ROLE_BINDING = _binding_columns(
    "roleBinding",
    "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef "
    "cannot be resolved, the Authorizer must return an error.",
)
CLUSTER_ROLE_BINDING = _binding_columns(
    "clusterRoleBinding",
    "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the "
    "Authorizer must return an error.",
)
