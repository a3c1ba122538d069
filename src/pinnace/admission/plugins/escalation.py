"""Prevents privilege escalation: checks every role and binding that is written."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.auth.authorization.coverage import MOST_MISSING, TooManyRules, find_missing
from pinnace.auth.authorization.rbac import Rbac
from pinnace.auth.authorization.rules import Rule, quoted, rules_of
from pinnace.model import errors
from pinnace.model.authorization import Action, Authorizer, Decision
from pinnace.model.objects import NOTHING, AnyObject, Object
from pinnace.model.typed_objects import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from pinnace.model.users import MASTERS, User
from pinnace.model.write_review import Review

GROUP = "rbac.authorization.k8s.io"
_ROLES = frozenset(("roles", "clusterroles"))
_BINDINGS = frozenset(("rolebindings", "clusterrolebindings"))
_EVERYTHING = (Rule(("*",), ("*",), ("*",)), Rule(("*",), urls=("*",)))
_OF_GARBAGE_COLLECTION = frozenset(("ownerReferences", "finalizers", "managedFields", "resourceVersion"))


class UnsupportedRoleReference(errors.ApiError):
    """A binding refers to neither a Role nor a ClusterRole. Kubernetes has no reason for this error."""

    code, reason = 500, ""


class NoEscalation:
    """Refuses roles and bindings that grant more than their writer holds, unless it may `escalate` or `bind`.

    It changes nothing, but runs as the last mutator: Kubernetes checks this before it validates the object, and before
    an update that would create the object needs the permission to create.
    """

    interests = ((GROUP, "*", frozenset(("CREATE", "UPDATE"))),)

    def __init__(self, rbac: Rbac, authorizer: Authorizer) -> None:
        self._rbac = rbac
        self._authorizer = authorizer

    async def mutate(self, review: Review) -> None:
        """Raise Forbidden, or NotFound for a missing role."""
        resource, new = review.resource, review.new
        if resource.group != GROUP or new is None or MASTERS in review.user.groups:
            return
        if review.old is not None and _is_housekeeping(new, review.old):
            return
        user = review.user
        if resource.plural in _ROLES:
            await self._check_role(review, user, review.changed)
        elif resource.plural in _BINDINGS:
            await self._check_binding(review, user, review.changed)

    async def _check_role(self, review: Review, user: User, role: Role | ClusterRole) -> None:
        plural = review.resource.plural
        name = review.name if review.operation == "UPDATE" else ""
        if await self._may(user, Action("escalate", "", GROUP, plural, "", review.namespace, name)):
            return
        await self._check_held(review, user, rules_of(role))
        gathers = any(_gathers(obj) for obj in (role, review.old or NOTHING))
        if gathers and await find_missing(self._rbac.rules_for(user, review.namespace), _EVERYTHING):
            raise _forbid(review, "must have cluster-admin privileges to use the aggregationRule")

    async def _check_binding(self, review: Review, user: User, binding: RoleBinding | ClusterRoleBinding) -> None:
        role = binding.get("roleRef") or {}
        kind, name = role.get("kind", ""), role.get("name", "")
        plural = "roles" if kind == "Role" else "clusterroles"
        if await self._may(user, Action("bind", "", GROUP, plural, "", review.namespace, name)):
            return
        if kind not in ("Role", "ClusterRole"):
            raise UnsupportedRoleReference(f'unsupported role reference kind: "{kind}"')
        key = f"{review.namespace}/{name}" if kind == "Role" else name
        rules = self._rbac.rules_of_role(kind, key)
        if rules is None:
            if kind == "Role" and not review.namespace:
                raise errors.BadRequest("Namespace parameter required.")
            # Kubernetes names the role as if it were a binding.
            raise errors.NotFound(group=GROUP, plural=review.resource.plural, name=name)
        await self._check_held(review, user, rules)

    async def _check_held(self, review: Review, user: User, rules: Iterable[Rule]) -> None:
        who = f'user "{user.name}" (groups={quoted(user.groups)})'
        try:
            missing = await find_missing(self._rbac.rules_for(user, review.namespace), rules)
        except TooManyRules:
            raise _forbid(
                review, f"{who} holds or grants too many rules to compare them; grant them in several roles"
            ) from None
        if missing:
            rules_missing = "\n".join(dict.fromkeys(str(rule) for rule in missing))
            more = "\n..." if len(missing) == MOST_MISSING else ""
            raise _forbid(
                review, f"{who} is attempting to grant RBAC permissions not currently held:\n{rules_missing}{more}"
            )

    async def _may(self, user: User, action: Action) -> bool:
        decision = self._authorizer.decide(user, action)
        return (decision if isinstance(decision, Decision) else await decision).is_allowed


def _gathers(role: AnyObject) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _forbid(review: Review, why: str) -> errors.Forbidden:
    return errors.Forbidden(why, group=GROUP, plural=review.resource.plural, name=review.name)


def _is_housekeeping(new: Object, old: Object) -> bool:
    """Return whether a write changes only the metadata for garbage collection."""
    return _without_housekeeping(new) == _without_housekeeping(old)


def _without_housekeeping(obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _OF_GARBAGE_COLLECTION}
    return {**{name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}, "metadata": metadata}
