"""Decodes the bytes of a request into an object, with a Kubernetes server's error messages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import orjson

from pinnace.kinds.golang import field_numbers
from pinnace.model import errors
from pinnace.model.objects import Kind, Object
from pinnace.schema.golang import protobuf
from pinnace.schema.golang.decode import DecodeError, Decoder
from pinnace.schema.golang.json_errors import MAX_DEPTH, error_for
from pinnace.schema.text_cache import cache_short_texts
from pinnace.serving.request.yaml_body import YamlError, read_yaml

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = (JSON, YAML, PROTOBUF)
ACCEPTED_OF_CUSTOM_KINDS = (JSON, YAML)

FieldValidation = Literal["Strict", "Warn", "Ignore"]

MAX_TOLD = 100
"""The most unknown or repeated fields that are reported for one body."""

GO_FORMS: dict[type, str] = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
"""Go's words for the types of JSON values."""
_ENVELOPE = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


_HALF = re.compile("[\ud800-\udfff]")


_MOST_DIGITS = 400
_ENCODABLE_DEPTH = 254
_CONTAINERS = (dict, list)
MAX_CONTAINERS = 100_000
"""How many objects and lists a body may have: an empty one is two bytes, and fields with defaults make it large."""

LONG_BYTES = 64 << 10
"""Work on more input than this takes a thread. Less takes some milliseconds, at most."""
LONG_TEXT_BYTES = 8 << 10
"""The same for YAML and protobuf, which take ten times as long to decode as JSON."""

_TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:{_TOKEN}|"(?:[^"\\\r\n]|\\.)*")[ \t]*(?:;|$)')


class MalformedBody(ValueError):
    """The bytes are not JSON, or not YAML. The message is Kubernetes'."""


class Body(NamedTuple):
    """An object as the client wrote it, and the fields that it repeats."""

    obj: Object
    repeated_fields: tuple[str, ...] = ()
    """The paths of fields that a JSON body gives more than once; the last one wins."""
    repeated_keys: tuple[str, ...] = ()
    """The same for a YAML body, as messages with line numbers."""
    is_protobuf: bool = False
    """Unknown fields are not reported: protobuf has no field names."""
    text: bytes = b""
    """The JSON text, kept where fields are repeated: errors are listed in its order."""


def is_long_body(body: bytes) -> bool:
    """Whether the body of a request is decoded beside the loop."""
    return len(body) > LONG_TEXT_BYTES and (len(body) > LONG_BYTES or body[:1] != b"{")


def read(
    body: bytes,
    content_type: str,
    *,
    kind: Kind,
    is_known: Callable[[Kind], bool],
    is_custom: bool = False,
    look_for_repeats: bool = False,
) -> Body:
    """Return the object in a request's body, of the `kind` that the URL serves; set apiVersion and kind.

    A built-in kind may leave them out; a custom one may not. `is_known` says which other kinds exist.
    Raises BadRequest and UnsupportedMediaType.
    """
    media_type = JSON if content_type == JSON else check_media_type(content_type)
    if media_type == PROTOBUF:
        return _read_protobuf(body, kind, is_known=is_known)
    try:
        if media_type == JSON:
            value = parse_json(body)
            repeated = repeated_fields(body, value) if look_for_repeats else ()
            read_body = Body(value, repeated_fields=repeated, text=body if repeated else b"")
        else:
            value, keys = read_yaml(body)
            read_body = Body(value, repeated_keys=keys if look_for_repeats else ())
        check_containers(value, body)
        check_envelope(value)
    except MalformedBody as err:
        raise _unrecognized_error(kind, f"couldn't get version/kind; json parse error: {err}", body) from None
    except YamlError as err:
        raise _unrecognized_error(kind, str(err), body) from None
    return _identify(read_body, body, kind, is_known=is_known, is_custom=is_custom)


def _read_protobuf(body: bytes, kind: Kind, *, is_known: Callable[[Kind], bool]) -> Body:
    message = field_numbers.message_of(kind)
    if message is None:
        raise errors.UnsupportedMediaType(ACCEPTED_OF_CUSTOM_KINDS)
    try:
        envelope = protobuf.read_envelope(body)
    except protobuf.MalformedProtobuf as err:
        raise _unrecognized_error(kind, str(err), body) from None
    unread = Body({"kind": envelope.kind, "apiVersion": envelope.api_version})
    named = _identify(unread, body, kind, is_known=is_known, is_custom=False).obj
    try:
        obj = named | field_numbers.reader().read(message, envelope.raw)
        _check_raw_depth(obj, body)
        check_containers(obj, body)
    except (protobuf.MalformedProtobuf, MalformedBody) as err:
        raise cannot_be_handled(kind, str(err)) from None
    return Body(obj, is_protobuf=True)


def _check_raw_depth(obj: Object, body: bytes) -> None:
    """Check the depth of JSON inside protobuf; the nesting of protobuf messages is bounded by their types."""
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH - 2 * protobuf.MAX_DEPTH and _is_too_deep(obj):
        raise MalformedBody("exceeded max depth")


def decode(body: Body, decoder: Decoder, *, kind: Kind, validation: FieldValidation) -> list[str]:
    """Read the object by its schema, in place; return the warnings. Raise BadRequest."""
    try:
        unknown = decoder(body.obj)
    except DecodeError as err:
        raise cannot_be_handled(kind, str(err)) from None
    if body.is_protobuf or (not unknown and not body.repeated_fields and not body.repeated_keys):
        return []
    # Fields below an unknown field are not examined, so their repetitions are not reported.
    seen = tuple(path for path in body.repeated_fields if not _is_within(path, unknown))
    return report_fields(body._replace(repeated_fields=seen), unknown, kind=kind, validation=validation)


def report_fields(body: Body, unknown: list[str], *, kind: Kind, validation: FieldValidation) -> list[str]:
    """Report repeated and unknown fields: raise if Strict, return warnings if Warn, nothing if Ignore."""
    if validation == "Ignore":
        return []
    if body.repeated_fields and unknown:
        errs = _in_order(body.text, set(body.repeated_fields), set(unknown))
    else:
        errs = [f'duplicate field "{path}"' for path in body.repeated_fields]
        errs += [f'unknown field "{path}"' for path in unknown]
    if validation == "Warn":
        return [*body.repeated_keys, *errs][:MAX_TOLD]
    if body.repeated_keys:
        errs.insert(0, "yaml: unmarshal errors:\n  " + "\n  ".join(body.repeated_keys))
    errs = errs[:MAX_TOLD]
    if errs:
        raise cannot_be_handled(kind, f"strict decoding error: {', '.join(errs)}")
    return []


def cannot_be_handled(kind: Kind, why: str, *, actual: Kind | None = None) -> errors.BadRequest:
    actual = actual or kind
    return errors.BadRequest(f'{actual.name} in version "{actual.version}" cannot be handled as a {kind.name}: {why}')


def check_media_type(content_type: str) -> str:
    """Return the media type of a body. Raise UnsupportedMediaType."""
    media_type = media_type_of(content_type)
    if media_type not in ACCEPTED or (";" in content_type and _has_malformed_parameters(content_type)):
        raise errors.UnsupportedMediaType(ACCEPTED)
    return media_type


@cache_short_texts(128)
def media_type_of(content_type: str) -> str:
    """Return the media type without its parameters; JSON if there is none."""
    return content_type.partition(";")[0].strip().lower() or JSON


@cache_short_texts(128)
def _has_malformed_parameters(content_type: str) -> bool:
    """Whether the parameters of a media type are not `name=value`, or one of them is repeated."""
    _, _, rest = content_type.partition(";")
    names = set()
    while rest := rest.strip(" \t"):
        match = _PARAMETER.match(rest)
        if match is None or match[1].lower() in names:
            return True
        names.add(match[1].lower())
        rest = rest[match.end() :]
    return False


def parse_json(body: bytes) -> Any:
    """Return the JSON value in the body. Raise MalformedBody, also for a body that nests too deep."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _parse_leniently(body)
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_too_deep(value):
        raise MalformedBody(error_for(body.decode("utf-8", "surrogateescape")) or "exceeded max depth")
    return value


def repeated_fields(body: bytes, value: Any) -> tuple[str, ...]:
    """Return the paths of fields that occur more than once in the JSON text `body`, which decodes to `value`."""
    text = orjson.dumps(value)
    # A key that was overwritten took its colon with it, and colons inside strings stand in both texts: if as many are
    # left as there were, nothing was repeated. Only a colon that is written as an escape would not be counted.
    if body.count(b":") == text.count(b":") and (b"\\" not in body or b"\\u003" not in body):
        return ()
    return _find_all_repeated(body)


def _find_all_repeated(body: bytes) -> tuple[str, ...]:
    pairs = json.loads(body.decode("utf-8", "replace"), object_pairs_hook=_Pairs, parse_int=_parse_int)
    repeated_paths: list[str] = []
    for path in _find_repeated("", pairs):
        repeated_paths.append(path)
        if len(repeated_paths) == MAX_TOLD:
            break
    return tuple(repeated_paths)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its fields, in their order."""


def _find_repeated(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            below = f"{path}.{key}" if path else key
            if key in seen:
                yield below
            seen.add(key)
            if isinstance(inner, list):
                yield from _find_repeated(below, inner)
    else:
        for at, inner in enumerate(value):
            if isinstance(inner, list):
                yield from _find_repeated(f"{path}[{at}]", inner)


def _in_order(text: bytes, repeated: set[str], unknown: set[str]) -> list[str]:
    """Return the errors in the order of the text."""
    warnings: list[str] = []
    _meet(
        "",
        json.loads(text.decode("utf-8", "replace"), object_pairs_hook=_Pairs, parse_int=_parse_int),
        repeated,
        unknown,
        warnings,
    )
    return list(dict.fromkeys(warnings))


def _meet(path: str, value: Any, repeated: set[str], unknown: set[str], warnings: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            below = f"{path}.{key}" if path else key
            if below in unknown:
                warnings.append(f'unknown field "{below}"')
                continue
            if key in seen and below in repeated:
                warnings.append(f'duplicate field "{below}"')
            seen.add(key)
            _meet(below, inner, repeated, unknown, warnings)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            _meet(f"{path}[{at}]", inner, repeated, unknown, warnings)


def _parse_leniently(body: bytes) -> Any:
    """Parse what Go accepts and orjson refuses: bytes that are not UTF-8 and halves of surrogate pairs."""
    err = error_for(body.decode("utf-8", "surrogateescape"))
    if err:
        raise MalformedBody(err)
    return _without_halves(json.loads(body.decode("utf-8", "replace"), parse_int=_parse_int))


def _parse_int(digits: str) -> int | float:
    """Parse an integer. Python refuses more than 4,300 digits; as a float such a number is infinite."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _without_halves(value: Any) -> Any:
    match value:
        case str():
            return _HALF.sub("\N{REPLACEMENT CHARACTER}", value)
        case dict():
            return {_without_halves(key): _without_halves(inner) for key, inner in value.items()}
        case list():
            return [_without_halves(inner) for inner in value]
        case float() if math.isinf(value):
            raise MalformedBody("json: cannot unmarshal number into Go value of type float64")
        case int() if not -(1 << 63) <= value < 1 << 64:
            return _without_halves(float(value) if value.bit_length() < 1024 else math.inf)
    return value


def _is_too_deep(value: Any) -> bool:
    for _ in range(_ENCODABLE_DEPTH - MAX_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


def check_containers(value: Any, body: bytes) -> None:
    """Raise TooLarge for a body of more than `MAX_CONTAINERS` objects and lists."""
    if len(body) >= 2 * MAX_CONTAINERS:
        _count_containers(value)


def _count_containers(value: Any) -> None:
    count, ahead = 0, [value]
    while ahead:
        part = ahead.pop()
        below: Iterable[Any] = part.values() if part.__class__ is dict else part if part.__class__ is list else ()
        ahead += [inner for inner in below if inner.__class__ in _CONTAINERS]
        count += 1
        if count + len(ahead) > MAX_CONTAINERS:
            raise errors.TooLarge(f"limit is {MAX_CONTAINERS} objects and lists")


def check_envelope(value: Any) -> None:
    """Raise MalformedBody for a value that is no object, or whose apiVersion or kind is no text."""
    if value is None:
        return
    if not isinstance(value, dict):
        raise MalformedBody(f"json: cannot unmarshal {GO_FORMS[type(value)]} into Go value of type {_ENVELOPE}")
    for field in ("apiVersion", "kind"):
        text = value.get(field)
        if text is not None and not isinstance(text, str):
            form = GO_FORMS[type(text)]
            raise MalformedBody(f"json: cannot unmarshal {form} into Go struct field .{field} of type string")


def _identify(body: Body, text: bytes, kind: Kind, *, is_known: Callable[[Kind], bool], is_custom: bool) -> Body:
    obj = body.obj or {}
    api_version, name = obj.get("apiVersion") or "", obj.get("kind") or ""
    own = kind.api_version
    if api_version == own and name == kind.name:
        return body
    if api_version.count("/") > 1:
        raise _unrecognized_error(kind, f"unexpected GroupVersion string: {api_version}", text)
    if is_custom and not name:
        quoted = text.decode("utf-8", "replace")
        raise _unrecognized_error(kind, f"Object 'Kind' is missing in '{quoted}'", text)
    if not is_custom:
        api_version, name = api_version or own, name or kind.name
    actual = kind
    if api_version != own or name != kind.name:
        actual = Kind.parse(api_version, name)
        if actual != kind:
            _refuse_other(actual, kind, is_known=is_known, is_custom=is_custom)
    obj["kind"], obj["apiVersion"] = actual.name, actual.api_version
    return body if body.obj else body._replace(obj=obj)


_STILL_READ = frozenset((Kind("policy", "v1beta1", "Eviction"),))
"""Versions that old clients still send and Kubernetes still reads, though it no longer serves them."""


_SCHEME = "pkg/api/legacyscheme/scheme.go:30"
_SCHEMES = {
    "apiextensions.k8s.io": "pkg/apiserver/apiserver.go:55",
    "apiregistration.k8s.io": "pkg/apiserver/scheme/scheme.go:28",
}
"""The places in Kubernetes where the kinds of a group are registered, which its messages name."""


def _refuse_other(actual: Kind, kind: Kind, *, is_known: Callable[[Kind], bool], is_custom: bool) -> None:
    if actual in _STILL_READ and actual.name == kind.name:
        return
    same_version = actual.group == kind.group and actual.version == kind.version
    if is_custom and same_version:
        return  # Validation reports the wrong kind.
    if not is_custom and not is_known(actual):
        why = f'no kind "{actual.name}" is registered for version "{actual.api_version}"'
        raise cannot_be_handled(kind, f'{why} in scheme "{_SCHEMES.get(kind.group, _SCHEME)}"', actual=actual)
    if is_custom or actual.name == kind.name:
        raise errors.BadRequest(
            f"the API version in the data ({actual.api_version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    package = kind.group.partition(".")[0] or "core"
    why = f"converting ({actual.version}.{actual.name}) to ({package}.{kind.name}): unknown conversion"
    raise cannot_be_handled(kind, why, actual=actual)


def _unrecognized_error(kind: Kind, why: str, body: bytes) -> errors.BadRequest:
    return errors.BadRequest(
        f"the object provided is unrecognized (must be of type {kind.name}): {why} ({_start(body)})"
    )


def _start(body: bytes) -> str:
    """Return the beginning of a body for a message: as text if it looks like JSON, else in hexadecimal."""
    if not body:
        return "<empty>"
    quoted = body[:30].decode("utf-8", "replace") if body[:1] == b"{" else body[:30].hex()
    return f"{quoted} ..." if len(body) > 30 else quoted


def _is_within(path: str, unknown: list[str]) -> bool:
    return any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in unknown)


def read_untyped(body: bytes, content_type: str) -> Object:
    """Read an object of any kind."""
    media_type = JSON if content_type == JSON else check_media_type(content_type)
    if media_type == PROTOBUF:
        return _read_delete_options(body)
    try:
        value = parse_json(body) if media_type == JSON else read_yaml(body).value
        check_containers(value, body)
        check_envelope(value)
    except MalformedBody as err:
        raise errors.BadRequest(f"couldn't get version/kind; json parse error: {err}") from None
    except YamlError as err:
        raise errors.BadRequest(str(err)) from None
    return value or {}


def _read_delete_options(body: bytes) -> Object:
    """Read DeleteOptions, which may come without a kind."""
    try:
        envelope = protobuf.read_envelope(body)
        head = {"kind": envelope.kind, "apiVersion": envelope.api_version}
        named = {field: text for field, text in head.items() if text}
        if envelope.kind not in ("", "DeleteOptions"):
            return named
        return named | field_numbers.reader().read(field_numbers.DELETE_OPTIONS, envelope.raw)
    except protobuf.MalformedProtobuf as err:
        raise errors.BadRequest(str(err)) from None
