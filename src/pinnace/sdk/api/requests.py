"""Parse a request to an API server: the verb, the resource and the options."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import yaml

from pinnace.model import errors, field_errors, selectors
from pinnace.model.objects import Key, Object
from pinnace.model.resources import Resource
from pinnace.sdk.api.callers import Caller
from pinnace.sdk.api.collection import CollectionEntry
from pinnace.sdk.api.request_info import RequestInfo
from pinnace.sdk.api.writes import APPLY, WriteOptions

_METHODS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_VALIDATIONS = ("Ignore", "Strict", "Warn")


def parse_request(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """Return the verb and resource of a request, whether or not the resource is served."""
    segments = path.strip("/").split("/")
    if segments[0] != "apis" or len(segments) < 4:
        return RequestInfo(method.lower(), path=path)
    _, group, version, *rest = segments
    is_watch = rest[0] == "watch"
    rest = rest[1:] if is_watch else rest
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "", "")[:3]
    if not resource or len(rest) > 3:
        return RequestInfo(method.lower(), path=path)
    verb = _METHODS.get(method, method.lower())
    if verb == "get" and not name:
        verb = "watch" if is_watch or read_flag(query, "watch") else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return RequestInfo(verb, group, version, resource, namespace, name, subresource)


def read_flag(query: Mapping[str, str], name: str) -> bool:
    return name in query and query[name] not in _FALSE


def read_number(query: Mapping[str, str], name: str) -> int:
    """Return a number of the query; 0 if it is missing. Raise BadRequest if it is not a whole number."""
    text = query.get(name) or "0"
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise errors.BadRequest(f"{name}={text!r} is not a whole number")
    return int(text)


def read_body(body: bytes, content_type: str) -> Any:
    """Decode JSON, or YAML if the content type allows it. Raise BadRequest."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as err:
        if content_type not in ("application/yaml", APPLY):
            raise errors.BadRequest(f"the body of the request is not JSON: {err}") from None
    try:
        return yaml.load(body, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as err:
        raise errors.BadRequest(f"the body of the request is not YAML: {err}") from None


class _Loader(yaml.SafeLoader):
    """Reads timestamps as the strings that they are in JSON."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - yaml requires a class attribute
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_write_options(query: Mapping[str, str], media_type: str, user_agent: str, caller: Caller) -> WriteOptions:
    """Return the options of a write. Raise Invalid."""
    manager = query.get("fieldManager", "")
    if media_type == APPLY and not manager:
        err = field_errors.required("fieldManager", "is required for apply patch")
        raise errors.Invalid([err], group="meta.k8s.io", kind="PatchOptions", name="")
    if query.get("dryRun") not in (None, "", "All"):
        err = field_errors.not_supported("dryRun", query["dryRun"], ["All"])
        raise errors.Invalid([err], group="meta.k8s.io", kind="WriteOptions", name="")
    validation = query.get("fieldValidation") or "Warn"
    if validation not in _VALIDATIONS:
        err = field_errors.not_supported("fieldValidation", validation, _VALIDATIONS)
        raise errors.Invalid([err], group="meta.k8s.io", kind="WriteOptions", name="")
    return WriteOptions(
        manager=manager or user_agent.partition("/")[0][:128] or "unknown",
        dry_run=query.get("dryRun") == "All",
        force=read_flag(query, "force"),
        validation=validation,
        caller=caller,
    )


@dataclass(frozen=True, slots=True)
class ObjectSelection:
    """The objects of a collection that a list, watch or deletecollection selects."""

    namespace: str
    matches: Callable[[CollectionEntry], bool]


def read_selection(request: RequestInfo, query: Mapping[str, str], resource: Resource) -> ObjectSelection:
    """Select by namespace, labels and fields. Raise BadRequest for a selector that cannot be parsed."""
    try:
        labels = selectors.label_selector(query.get("labelSelector", ""))
        fields = selectors.field_selector(query.get("fieldSelector", ""))
    except ValueError as error:
        raise errors.BadRequest(str(error)) from None
    for requirement in fields.requirements:
        if requirement.field not in ("metadata.name", "metadata.namespace", *resource.selectable):
            raise errors.BadRequest(f"field label not supported: {requirement.field}")

    def matches(entry: CollectionEntry) -> bool:
        if request.namespace not in ("", entry.key.namespace):
            return False
        if labels.matches_everything and not fields.requirements:
            return True
        obj = entry.object
        if not labels.matches(obj["metadata"].get("labels") or {}):
            return False
        return fields.matches(lambda name: _value(obj, entry.key, name, resource))

    return ObjectSelection(request.namespace, matches)


def _value(obj: Object, key: Key, field: str, resource: Resource) -> str:
    if field == "metadata.name":
        return key.name
    return key.namespace if field == "metadata.namespace" else resource.selectable[field](obj)


def continue_token(revision: int, key: Key) -> str:
    """Return the token that continues a list after this object, at this revision."""
    return base64.urlsafe_b64encode(orjson.dumps([revision, *key])).decode().rstrip("=")


def read_continue_token(token: str) -> tuple[int, Key]:
    """Return the revision and the last object of a continue token. Raise BadRequest."""
    try:
        found, namespace, name = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(found), Key(str(namespace), str(name))
    except (binascii.Error, ValueError, TypeError):
        raise errors.BadRequest("continue key is not valid: it is not a token of this server") from None
