"""The rules that a user holds, and whether the list is complete."""

from __future__ import annotations

from pinnace.auth.authorization.nodes import node_name
from pinnace.auth.authorization.rbac import Rbac
from pinnace.auth.authorization.rules import Rule
from pinnace.auth.users import User


class HeldRules:
    """Roles are rules; what nodes may depends on their pods, and what a webhook thinks is its own."""

    def __init__(self, rbac: Rbac, *, has_webhook: bool) -> None:
        self._rbac = rbac
        self._has_webhook = has_webhook

    def rules_for(self, user: User, namespace: str) -> list[Rule]:
        return self._rbac.rules_for(user, namespace)

    def unknown_for(self, user: User) -> str:
        """Return why the rules may be incomplete; empty if they are complete."""
        others = ["node"] if node_name(user) is not None else []
        others += ["webhook"] if self._has_webhook else []
        told = [f"{other} authorizer does not support user rule resolution" for other in others]
        return told[0] if len(told) == 1 else f"[{', '.join(told)}]" if told else ""
