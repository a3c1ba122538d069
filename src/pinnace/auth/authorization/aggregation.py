"""Cluster roles that gather the rules of others: which rules they come to."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.model import selectors
from pinnace.model.objects import Object


def aggregate_rules(role: Object, roles: Iterable[Object]) -> list[Object] | None:
    """Return the rules of all roles that the role's selectors match, each once, by role name; None without selectors.

    `roles` may contain the role itself, which is left out.
    """
    chosen_by = (role.get("aggregationRule") or {}).get("clusterRoleSelectors")
    if not chosen_by:
        return None
    by_name = sorted(roles, key=lambda one: str(one["metadata"]["name"]))
    rules: dict[tuple[tuple[str, tuple[str, ...]], ...], Object] = {}
    for wanted in chosen_by:
        selector = selectors.from_object(wanted)
        for other in by_name:
            if other["metadata"]["name"] == role["metadata"]["name"]:
                continue
            if selector.matches(other["metadata"].get("labels") or {}):
                for rule in other.get("rules") or ():
                    rules.setdefault(tuple((name, tuple(rule[name] or ())) for name in sorted(rule)), rule)
    return list(rules.values())
