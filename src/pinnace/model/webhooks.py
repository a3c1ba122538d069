"""Webhooks as objects configure them: where one is called, what a caller may rely on, and the types of answers."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pinnace.model.objects import Object


class WebhookCallError(Exception):
    """A webhook gave no answer that can be read. The message is for the user."""


class UnusableWebhook(WebhookCallError):
    """A webhook cannot be called as it is configured."""


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """A `clientConfig`: the address of a webhook, and the CA bundle that its certificate must chain to."""

    url: str
    service: tuple[str, str, int] | None
    """Namespace, name and port of the service, instead of the url."""
    path: str
    bundle: str
    """In base64; empty for the CAs of the system."""

    @classmethod
    def read(cls, client_config: Mapping[str, Any]) -> WebhookEndpoint:
        bundle = client_config.get("caBundle") or ""
        service = client_config.get("service")
        if service is None:
            return cls(clean_url(client_config.get("url") or ""), None, "", bundle)
        place = (service["namespace"], service["name"], int(service.get("port") or 443))
        return cls("", place, clean_path(service.get("path") or "/"), bundle)


def clean_path(path: str) -> str:
    """Return the path as Kubernetes sends it: without empty segments, dots and a slash at the end."""
    return quote(posixpath.normpath("/" + unquote(path).lstrip("/")), safe="/$&+,:;=@")


def clean_url(url: str) -> str:
    """Return the URL with a cleaned path. A URL that cannot be parsed is left to the caller."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit((parts.scheme, parts.netloc, clean_path(parts.path), parts.query, ""))


class WebhookClient(Protocol):
    """Calls webhooks."""

    async def post(self, endpoint: WebhookEndpoint, review: Object, *, seconds: float, agent: str) -> Any:
        """Return the JSON of the answer to a review. Raise WebhookCallError.

        `agent` is the user agent by which the webhook knows the caller.
        """


class ServiceAddresses(Protocol):
    """Finds an endpoint of a service."""

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Return a host and a port. Raise LookupError with a sentence if the Service has no usable endpoint."""


_WORDS = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_INT32 = 2**31


class UnreadableValue(ValueError):
    """A value does not have the type of its field. The message is Go's."""


class Struct(NamedTuple):
    """A Go struct: its name, and its fields with their types."""

    name: str
    fields: Mapping[str, Struct | tuple[Struct] | str]
    """A list of structs is a tuple. Every other type is a name."""

    @property
    def go_type(self) -> str:
        return f"v1.{self.name}"


_CAUSE = Struct("StatusCause", {"reason": "v1.CauseType", "message": "string", "field": "string"})
_DETAILS = Struct(
    "StatusDetails",
    {
        **dict.fromkeys(("name", "group", "kind"), "string"),
        "uid": "types.UID",
        "causes": (_CAUSE,),
        "retryAfterSeconds": "int32",
    },
)
_STATUS = Struct(
    "Status",
    {
        **dict.fromkeys(("kind", "apiVersion", "status", "message"), "string"),
        "reason": "v1.StatusReason",
        "details": _DETAILS,
        "code": "int32",
    },
)
CONVERSION_RESPONSE = Struct(
    "ConversionResponse",
    {"uid": "types.UID", "convertedObjects": "[]runtime.RawExtension", "result": _STATUS},
)
ADMISSION_RESPONSE = Struct(
    "AdmissionResponse",
    {
        "uid": "types.UID",
        "allowed": "bool",
        "status": _STATUS,
        "patch": "[]uint8",
        "patchType": "v1.PatchType",
        "auditAnnotations": "map[string]string",
        "warnings": "[]string",
    },
)


def go_word(value: Any) -> str:
    """Return the name of a JSON value in Go's messages."""
    return _WORDS[type(value)]


def check_review(answer: Mapping[str, Any], group: str, version: str, kind: str, response: Struct) -> None:
    """Raise UnreadableValue unless the answer is such a review, or of no kind, and its response can be decoded."""
    sent = (answer.get("apiVersion") or "", answer.get("kind") or "")
    if "" not in sent and sent != (f"{group}/{version}", kind):
        if sent in ((f"{group}/v1", kind), (f"{group}/v1beta1", kind), ("v1", "Status")):
            was = f"{sent[0].rpartition('/')[2]}.{sent[1]}"
            raise UnreadableValue(f"converting ({was}) to ({version}.{kind}): unknown conversion")
        raise UnreadableValue(
            f'no kind "{sent[1]}" is registered for version "{sent[0]}" in scheme "pkg/util/webhook/client.go:71"'
        )
    check_types(answer.get("response"), response, kind, ("response",))


def check_types(value: Any, wanted: Struct, owner: str, path: tuple[str, ...]) -> None:
    """Raise UnreadableValue for the first value that does not fit; `owner` is the struct that has this field."""
    if value is None:
        return
    if not isinstance(value, dict):
        raise _mismatch(value, wanted.go_type, owner, path)
    for name, given in value.items():
        kind = wanted.fields.get(name)
        if kind is None or given is None:
            continue
        below = (*path, name)
        if isinstance(kind, str):
            _check_plain(given, kind, wanted.name, below)
        elif isinstance(kind, Struct):
            check_types(given, kind, wanted.name, below)
        elif not isinstance(given, list):
            raise _mismatch(given, f"[]{kind[0].go_type}", wanted.name, below)
        else:
            for item in given:
                check_types(item, kind[0], wanted.name, below)


def _check_plain(value: Any, kind: str, owner: str, path: tuple[str, ...]) -> None:
    if kind == "[]string" or kind == "map[string]string":
        if not isinstance(value, list if kind == "[]string" else dict):
            raise _mismatch(value, kind, owner, path)
        for item in value if isinstance(value, list) else value.values():
            if item is not None and not isinstance(item, str):
                raise _mismatch(item, "string", owner, path)
    elif kind == "[]runtime.RawExtension":
        if not isinstance(value, list):
            raise _mismatch(value, kind, owner, path)
    elif kind == "int32":
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _mismatch(value, kind, owner, path)
        if isinstance(value, float) or not -_INT32 <= value < _INT32:
            raise _mismatch(value, kind, owner, path, literal=f" {value}")
    elif not isinstance(value, bool if kind == "bool" else str):
        raise _mismatch(value, kind, owner, path)


def _mismatch(value: Any, kind: str, owner: str, path: tuple[str, ...], *, literal: str = "") -> UnreadableValue:
    field = ".".join((owner, *path))
    return UnreadableValue(
        f"json: cannot unmarshal {go_word(value)}{literal} into Go struct field {field} of type {kind}"
    )
