"""Defaults and validation of secrets: their types, required keys, and stringData."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping

import orjson

from pinnace.kinds.validation.fields import validate_immutable
from pinnace.kinds.validation.pem import find_blocks
from pinnace.model import names
from pinnace.model.errors import REDACTED
from pinnace.model.field_errors import FieldError, forbidden, invalid, required, too_long
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import ConfigMap, Secret
from pinnace.schema.text_cache import cache_short_texts

MOST_BYTES = 1024 * 1024
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
FROZEN = "field is immutable when `immutable` is set"

_DOCKER_KEYS = {"kubernetes.io/dockercfg": ".dockercfg", "kubernetes.io/dockerconfigjson": ".dockerconfigjson"}

config_key_errors = cache_short_texts(4096)(names.config_key)
"""Cached, because keys repeat: data, ca.crt, application.properties."""


def decoded_size(encoded: str) -> int:
    """Return the number of bytes of a base64 text, without decoding it."""
    return len(encoded) * 3 // 4 - encoded.count("=", -2)


def validate_frozen(new: ConfigMap | Secret, old: ConfigMap | Secret, *fields: str) -> Iterator[FieldError]:
    """Check the fields that may not change once `immutable` is set."""
    if old.get("immutable"):
        if not new.get("immutable"):
            yield forbidden("immutable", FROZEN)
        for field in fields:
            if (new.get(field) or None) != (old.get(field) or None):
                yield forbidden(field, FROZEN)


def _default_secret(secret: Secret) -> None:
    plain: Mapping[str, str] | None = secret.pop("stringData", None)
    if plain:
        data = secret.get("data") or {}
        secret["data"] = {**data, **{key: b64encode(text.encode()).decode() for key, text in plain.items()}}
    if not secret.get("type"):
        secret["type"] = "Opaque"


def _validate_secret(secret: Secret, old: Secret | None) -> Iterator[FieldError]:
    if old is not None:
        yield from validate_immutable(secret.get("type", ""), old.get("type", ""), "type")
        yield from validate_frozen(secret, old, "data")
    data: Mapping[str, str] = secret.get("data") or {}
    size = 0
    for key, value in data.items():
        for err in config_key_errors(key):
            yield invalid(f"data[{key}]", key, err)
        size += decoded_size(value)
    if size > MOST_BYTES:
        yield too_long("data", MOST_BYTES)
    yield from _validate_type(secret, data)


def _validate_type(secret: Secret, data: Mapping[str, str]) -> Iterator[FieldError]:
    match secret.get("type", ""):
        case "kubernetes.io/service-account-token":
            if not (secret["metadata"].get("annotations") or {}).get(SERVICE_ACCOUNT_NAME):
                yield required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]")
        case "kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson" as kind:
            key = _DOCKER_KEYS[kind]
            if key not in data:
                yield required(f"data[{key}]")
            elif err := _check_json_object(_decode(data[key])):
                yield invalid(f"data[{key}]", REDACTED, err)
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                yield required("data[username]")
                yield required("data[password]")
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                yield required("data[ssh-privatekey]")
        case "kubernetes.io/tls":
            yield from (required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data)


def _check_json_object(text: bytes) -> str:
    """Return Go's error for a text that is not a JSON object; empty if it is one."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        started = text.lstrip()
        if not started or started[:1] in b'{["':
            return "unexpected end of JSON input"
        return _check_literal(started.decode(errors="replace"))
    if value is None or isinstance(value, dict):
        return ""
    kinds = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
    return f"json: cannot unmarshal {kinds[type(value)]} into Go value of type map[string]interface {{}}"


def _check_literal(text: str) -> str:
    literal = next((word for word in ("null", "true", "false") if text[0] == word[0]), "")
    for letter, expected in zip(text, literal, strict=False):
        if letter != expected:
            return f"invalid character '{letter}' in literal {literal} (expecting '{expected}')"
    return f"invalid character '{text[0]}' looking for beginning of value"


def _decode(encoded: str) -> bytes:
    try:
        return b64decode(encoded)
    except NotBase64:
        return b""


def _secret_warnings(secret: Secret, old: Secret | None) -> Iterator[str]:
    if secret.get("type") == "kubernetes.io/tls":
        data: Mapping[str, str] = secret.get("data") or {}
        if err := _check_key_pair(_decode(data.get("tls.crt", "")), _decode(data.get("tls.key", ""))):
            yield err


def _check_key_pair(certificate: bytes, key: bytes) -> str:
    """Return the error of Go's TLS for a key pair that it cannot load, as far as the PEM blocks show."""
    blocks = [name.decode(errors="replace") for name, _ in find_blocks(certificate)]
    if "CERTIFICATE" not in blocks:
        if not blocks:
            return "tls: failed to find any PEM data in certificate input"
        if len(blocks) == 1 and blocks[0].endswith("PRIVATE KEY"):
            return (
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; "
                "PEM inputs may have been switched"
            )
        skipped = " ".join(blocks)
        return (
            'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks of the '
            f"following types: [{skipped}]"
        )
    blocks = [name.decode(errors="replace") for name, _ in find_blocks(key)]
    if not any(name.endswith("PRIVATE KEY") for name in blocks):
        if not blocks:
            return "tls: failed to find any PEM data in key input"
        if blocks == ["CERTIFICATE"]:
            return "tls: found a certificate rather than a key in the PEM for the private key"
        skipped = " ".join(blocks)
        return (
            'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after skipping PEM blocks '
            f"of the following types: [{skipped}]"
        )
    return ""


def _prepare_secret(secret: Secret, old: Secret | None) -> None:
    if old is not None and not secret.get("type"):
        secret["type"] = old.get("type", "Opaque")


SECRET = Strategy(
    default=_default_secret, prepare=_prepare_secret, validate=_validate_secret, warnings=_secret_warnings
)
