"""A request for objects, understood: which verb on which resource, and the options it came with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import orjson

from pinnace.auth.authorization.authorizers import Action
from pinnace.auth.users import User
from pinnace.model import errors, field_errors
from pinnace.model.names import path_segment
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.server.http.messages import Request

_VERB_OF_METHOD = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))
_OF_ONE = frozenset(("get", "update", "patch", "delete"))
_NO_NAMES = frozenset((".", ".."))
_NUMBER = re.compile("[+-]?[0-9]{1,40}", re.ASCII)


@dataclass(slots=True, eq=False)
class Call:
    """One use of the objects API. `name` is empty for a collection, `namespace` for cluster scope or all namespaces."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    tail: str
    """What follows the subresource in the path, for those that proxy."""
    request: Request
    user: User
    warnings: list[str] = field(default_factory=list)
    seen_in: dict[tuple[str, bytes], Object | None] | None = None
    """What webhooks said of objects in other versions of their kind, to tell whose fields change (see ownership)."""

    @property
    def key(self) -> str:
        """Where the object lies in its shelf."""
        return f"{self.namespace}/{self.name}" if self.resource.namespaced else self.name

    def text(self, name: str) -> str:
        return self.request.parameter(name) or ""

    def flag(self, name: str) -> bool:
        """A boolean option as Kubernetes reads it: whatever is said means true, unless it is "0" or "false"."""
        given = self.request.parameter(name)
        return given is not None and _is_true(given)

    def number(self, name: str) -> int | None:
        given = self.request.parameter(name)
        if given is None:
            return None
        if not _NUMBER.fullmatch(given):
            raise errors.BadRequest(f"strconv.ParseInt: parsing {orjson.dumps(given).decode()}: invalid syntax")
        number = int(given)
        if number.bit_length() > 63:
            raise errors.BadRequest(f'strconv.ParseInt: parsing "{given}": value out of range')
        return number

    @property
    def is_dry_run(self) -> bool:
        if self.request.body_says_dry_run or not self.request.raw_query:
            return self.request.body_says_dry_run
        asked = self.request.query.get("dryRun")
        if not asked:
            return False
        for value in asked:
            if value != "All":
                raise errors.Invalid(
                    [_unsupported_dry_run(value)], group="meta.k8s.io", kind=f"{self.verb.capitalize()}Options", name=""
                )
        return True

    # The errors that name what was asked for.

    def not_found(self) -> errors.NotFound:
        return errors.NotFound(group=self.resource.group, plural=self.resource.plural, name=self.name)

    def already_exists(self, *, is_leaving: bool = False) -> errors.AlreadyExists:
        group, plural = self.resource.group, self.resource.plural
        return errors.AlreadyExists(group=group, plural=plural, name=self.name, is_leaving=is_leaving)

    def conflict(self, why: str) -> errors.Conflict:
        return errors.Conflict(why, group=self.resource.group, plural=self.resource.plural, name=self.name)

    def forbidden(self, why: str) -> errors.Forbidden:
        return errors.Forbidden(why, group=self.resource.group, plural=self.resource.plural, name=self.name)


def understand(request: Request, segments: list[str], registry: Registry, user: User) -> Call | None:
    """The call behind /api/v1/... or /apis/group/version/...; None if the path names no object or collection.

    `segments` is the path split at slashes, without the leading empty one.
    """
    if segments[0] == "api":
        group, version, rest = "", segments[1], segments[2:]
    else:
        group, version, rest = segments[1], segments[2], segments[3:]
    watching = False
    if rest and rest[0] == "watch":
        watching, rest = True, rest[1:]
    if rest and rest[-1] == "":
        rest = rest[:-1]
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and not (group == "" and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    resource = registry.find(group, version, rest[0])
    if resource is None:
        return None
    if bool(namespace) and not resource.namespaced:
        return None
    name = rest[1] if len(rest) > 1 else ""
    if "%" in name or name in _NO_NAMES:
        raise errors.BadRequest(
            f"Name parameter invalid: {orjson.dumps(name).decode()}: {';'.join(path_segment(name))}"
        )
    subresource = rest[2] if len(rest) > 2 else ""
    tail = "/".join(rest[3:]) if len(rest) > 3 else ""
    call = Call("", resource, namespace, name, subresource, tail, request, user)
    call.verb = _verb(call, watching)
    if subresource:
        known = resource.subresource(subresource)
        if resource.custom is not None:
            if known is None:
                raise call.not_found()
            if call.verb not in known.verbs:
                raise errors.MethodNotAllowed(call.verb, group=resource.group, plural=resource.plural)
        if known is None or (call.tail and subresource != "proxy"):
            return None
        if call.verb and call.verb not in known.verbs:
            raise errors.BadMethod()
    elif call.verb not in resource.verbs:
        if name and _OF_ONE.isdisjoint(resource.verbs):
            return None  # What can only be asked has no objects, and so no paths to them.
        raise errors.BadMethod()
    if resource.namespaced and not namespace:
        if name:
            return None
        if call.verb not in ("list", "watch"):
            raise errors.BadMethod()
    return call


def action_of(request: Request, segments: list[str]) -> Action:
    """What a path below /api/v1 or /apis/group/version asks for, whether or not that is served."""
    group, rest = ("", segments[2:]) if segments[0] == "api" else (segments[1], segments[3:])
    version = segments[1] if segments[0] == "api" else segments[2]
    verb = _VERB_OF_METHOD.get(request.method, "")
    watching = bool(rest) and rest[0] == "watch"
    if watching:
        rest = rest[1:]
    namespace = ""
    if rest and rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and not (group == "" and rest[2] in _NAMESPACE_SUBRESOURCES):
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "", "")[:3]
    if not resource:
        return Action(request.method.lower(), path=request.path)
    if request.method in ("GET", "HEAD"):
        asked = request.parameter("watch")
        watching = watching or (asked is not None and _is_true(asked) and not name)
        verb = "watch" if watching else "get" if name else "list"
    elif request.method == "DELETE":
        verb = "delete" if name else "deletecollection"
    return Action(verb, "", group, resource, subresource, namespace, name, version)


def requested_action(request: Request) -> Action:
    """What any request asks for, be it for objects or not, and be it served or not."""
    segments = request.path.split("/")[1:]
    if (segments[0] == "api" and len(segments) > 2) or (segments[0] == "apis" and len(segments) > 3):
        return action_of(request, segments)
    return Action(request.method.lower(), path=request.path)


def _verb(call: Call, watching: bool) -> str:
    method = call.request.method
    if method == "HEAD" and call.subresource != "proxy":
        raise errors.BadMethod()
    if method in ("GET", "HEAD"):
        if call.subresource:
            return "get"
        if watching or (call.request.raw_query and not call.name and call.flag("watch")):
            return "watch"
        return "get" if call.name else "list"
    if method == "DELETE":
        return "delete" if call.name else "deletecollection"
    verb = _VERB_OF_METHOD.get(method)
    if method == "OPTIONS" and call.subresource == "proxy":
        return ""  # Asked of whom it is passed on to; no verb of ours means it.
    if (
        verb is None
        or (verb == "create" and call.name and not call.subresource)
        or (verb != "create" and not call.name)
    ):
        if call.resource.custom is not None and verb in ("update", "patch"):
            raise errors.BadRequest("name must be provided")
        raise errors.BadMethod()
    return verb


def _is_true(given: str) -> bool:
    return given != "0" and given.lower() != "false"


def _unsupported_dry_run(value: str) -> field_errors.FieldError:
    return field_errors.not_supported("dryRun", [value], ["All"])
