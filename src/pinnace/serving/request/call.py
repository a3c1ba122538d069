"""A parsed request for objects: the verb, the resource, the name and the options."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from pinnace.model import errors, field_errors
from pinnace.model.authorization import Action
from pinnace.model.names import path_segment
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.model.users import User
from pinnace.serving.messages import Peer, Request, RequestHead, split_target

_VERB_OF_METHOD = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))
_OF_ONE = frozenset(("get", "update", "patch", "delete"))
_NO_NAMES = frozenset((".", ".."))
_NUMBER = re.compile("[+-]?[0-9]{1,40}", re.ASCII)


@dataclass(eq=False)
class Call:
    """One use of the objects API. `name` is empty for a collection, `namespace` for cluster scope or all namespaces.

    A field that most calls leave alone is one of the class.
    """

    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    tail: str
    """The rest of the path after the subresource, for the proxy."""
    request: Request
    user: User
    warnings: list[str] = field(default_factory=list)
    seen_in: dict[tuple[str, bytes], Object | None] | None = field(default=None, init=False)
    """Objects that webhooks converted to other versions, to find the managers of changed fields."""
    selection: object | None = field(default=None, init=False)
    """The parsed selectors of a long query (see `read/selection.py`)."""
    takes_shards: bool = field(default=False, init=False)
    """Whether the server acts on shardSelector."""

    @property
    def key(self) -> str:
        """The key of the object in its watch cache."""
        return f"{self.namespace}/{self.name}" if self.resource.namespaced else self.name

    @property
    def manager(self) -> str:
        """The field manager: the fieldManager option, or the first word of the User-Agent."""
        return self.request.parameter("fieldManager") or self.request.head.agent

    def text(self, name: str) -> str:
        return self.request.parameter(name) or ""

    def flag(self, name: str) -> bool:
        """Return a boolean option as Kubernetes parses it: every value but "0" and "false" is true."""
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
        return self._asks_for_dry_run()

    def _asks_for_dry_run(self) -> bool:
        values = self.request.query.get("dryRun")
        if not values:
            return False
        errs = dry_run_errors(values)
        if errs:
            raise errors.Invalid(errs, group="meta.k8s.io", kind=f"{self.verb.capitalize()}Options", name="")
        return True

    # Errors that name the requested object.

    def not_found(self) -> errors.NotFound:
        return errors.NotFound(group=self.resource.group, plural=self.resource.plural, name=self.name)

    def already_exists(self, *, is_leaving: bool = False) -> errors.AlreadyExists:
        group, plural = self.resource.group, self.resource.plural
        return errors.AlreadyExists(group=group, plural=plural, name=self.name, is_leaving=is_leaving)

    def conflict(self, why: str) -> errors.Conflict:
        return errors.Conflict(why, group=self.resource.group, plural=self.resource.plural, name=self.name)

    def forbidden(self, why: str) -> errors.Forbidden:
        return errors.Forbidden(why, group=self.resource.group, plural=self.resource.plural, name=self.name)


def parse_call(request: Request, segments: list[str], registry: Registry, user: User) -> Call | None:
    """Parse the call of /api/v1/... or /apis/group/version/...; return None if the path names no object or collection.

    `segments` is the path split at slashes, without the leading empty one.
    """
    path = _split(segments)
    resource = registry.find(path.group, path.version, path.plural)
    if resource is None or (path.namespace and not resource.namespaced):
        return None
    if "%" in path.name or path.name in _NO_NAMES:
        why = ";".join(path_segment(path.name))
        raise errors.BadRequest(f"Name parameter invalid: {orjson.dumps(path.name).decode()}: {why}")
    call = Call("", resource, path.namespace, path.name, path.subresource, path.tail, request, user)
    call.verb = _verb(call, path.is_watch)
    if not (_serves_subresource(call) if call.subresource else _serves_verb(call)):
        return None
    if resource.namespaced and not call.namespace:
        if call.name:
            return None
        if call.verb not in ("list", "watch"):
            raise errors.BadMethod()
    return call


class _Path(NamedTuple):
    """The parts of a path below a version of an API group; empty where the path has none."""

    group: str
    version: str
    is_watch: bool
    namespace: str
    plural: str
    name: str
    subresource: str
    tail: str


def _split(segments: list[str]) -> _Path:
    if segments[0] == "api":
        group, version, rest = "", segments[1], segments[2:]
    else:
        group, version, rest = segments[1], segments[2], segments[3:]
    is_watch = bool(rest) and rest[0] == "watch"
    if is_watch:
        rest = rest[1:]
    if rest and rest[-1] == "":
        rest = rest[:-1]
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and not (group == "" and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    return _Path(group, version, is_watch, namespace, plural, name, subresource, "/".join(rest[3:]))


def _serves_subresource(call: Call) -> bool:
    """Whether the path exists. Raise if it does and does not take the verb."""
    resource, known = call.resource, call.resource.subresource(call.subresource)
    if resource.custom is not None:
        if known is None:
            raise call.not_found()
        if call.verb not in known.verbs:
            raise errors.MethodNotAllowed(call.verb, group=resource.group, plural=resource.plural)
    if known is None or (call.tail and call.subresource != "proxy"):
        return False
    if call.verb and call.verb not in known.verbs:
        raise errors.BadMethod()
    return True


def _serves_verb(call: Call) -> bool:
    """Whether the path exists. Raise if it does and does not take the verb."""
    if call.verb in call.resource.verbs:
        return True
    if call.name and _has_no_objects(call.resource):
        return False
    if call.verb == "watch" and "list" in call.resource.verbs:
        raise errors.MethodNotAllowed(call.verb, group=call.resource.group, plural=call.resource.plural)
    raise errors.BadMethod()


def _has_no_objects(resource: Resource) -> bool:
    return _OF_ONE.isdisjoint(resource.verbs)


def action_of(request: Request, segments: list[str]) -> Action:
    """Return the action of a path below /api/v1 or /apis/group/version, whether or not it is served."""
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
        watch = request.parameter("watch")
        watching = watching or (watch is not None and _is_true(watch) and not name)
        verb = "watch" if watching else "get" if name else "list"
    elif request.method == "DELETE":
        verb = "delete" if name else "deletecollection"
    return Action(verb, "", group, resource, subresource, namespace, name, version)


def split_path(path: str) -> list[str]:
    """Split a path at its slashes, without the leading empty segment. The target `*` is one segment."""
    return path.split("/")[1:] or [path]


def requested_action(request: Request) -> Action:
    """Return the action of any request, for objects or not, served or not."""
    segments = split_path(request.path)
    if (segments[0] == "api" and len(segments) > 2) or (segments[0] == "apis" and len(segments) > 3):
        return action_of(request, segments)
    return Action(request.method.lower(), path=request.path)


def action_of_target(method: str, target: str) -> Action:
    """Return the action of a method and a request target. Raise BadTarget."""
    path, query = split_target(target)
    return requested_action(Request(method, target, path, query, RequestHead({}), b"", Peer(asyncio.BaseTransport())))


def _verb(call: Call, is_watch: bool) -> str:
    method = call.request.method
    if method == "HEAD" and call.subresource != "proxy":
        raise errors.BadMethod()
    if method in ("GET", "HEAD"):
        if call.subresource:
            return "get"
        if is_watch or (call.request.raw_query and not call.name and call.flag("watch")):
            return "watch"
        return "get" if call.name else "list"
    if method == "DELETE":
        return "delete" if call.name else "deletecollection"
    verb = _VERB_OF_METHOD.get(method)
    if method == "OPTIONS" and call.subresource == "proxy":
        return ""  # Passed on to the proxied server; no verb of the API stands for it.
    if (
        verb is None
        or (verb == "create" and call.name and not call.subresource)
        or (verb != "create" and not call.name)
    ):
        if call.resource.custom is not None and verb in ("update", "patch"):
            raise errors.BadRequest("name must be provided")
        # Reviews have no objects, and so no paths to them.
        raise errors.NoSuchPath() if call.name and _has_no_objects(call.resource) else errors.BadMethod()
    return verb


def _is_true(given: str) -> bool:
    return given != "0" and given.lower() != "false"


_LARGEST_REVISION = (1 << 64) - 1
_MOST_REVISION_DIGITS = len(str(_LARGEST_REVISION))


def parse_revision(text: str) -> int:
    """Return the number in a resourceVersion. Raise ValueError, in Go's words, if it is none."""
    digits = text.lstrip("0") or "0"
    why = "" if text.isascii() and text.isdigit() else "invalid syntax"
    if not why and (len(digits) > _MOST_REVISION_DIGITS or int(digits) > _LARGEST_REVISION):
        why = "value out of range"
    if why:
        raise ValueError(f"strconv.ParseUint: parsing {orjson.dumps(text).decode()}: {why}")
    return int(digits)


def dry_run_errors(values: list[str]) -> list[field_errors.FieldError]:
    """Return the error about the values of `dryRun`, all of which must be "All"."""
    return [] if all(value == "All" for value in values) else [field_errors.not_supported("dryRun", values, ["All"])]
