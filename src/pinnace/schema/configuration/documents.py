"""Reads a configuration file of a component of Kubernetes: one document, strictly decoded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.schema.field_errors import FieldError
from pinnace.schema.golang.decode import DecodeError, Decoders
from pinnace.schema.shape import Schema

GROUP = "apiserver.config.k8s.io"
Object: TypeAlias = dict[str, Any]
_LARGEST = 4 * 1024 * 1024
TEXT: Object = {"type": "string"}
FLAG: Object = {"type": "boolean"}
TEXTS: Object = {"type": "array", "items": TEXT}


def structure(**fields: Object) -> Object:
    """Return the schema of an object with these fields."""
    return {"type": "object", "properties": fields}


def items(schema: Object) -> Object:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def read_file(path: Path) -> bytes:
    """Return the content of a configuration file. Raise ConfigurationError."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise ConfigurationError(f"{path} is larger than {_LARGEST} bytes")
    return content


def decode(
    content: bytes, path: Path, *, kind: str, versions: Sequence[str], fields: Object, group: str = GROUP
) -> Object:
    """Return the document of a file. Raise ConfigurationError for another kind, a wrong type or an unknown field."""
    document = read_yaml(content, path, kind)
    served = [f"{group}/{version}" for version in versions]
    actual = (document.get("apiVersion"), document.get("kind"))
    if actual[1] != kind or actual[0] not in served:
        raise ConfigurationError(
            f"{path}: expected kind {kind} of apiVersion {' or '.join(served)}, found kind {actual[1]} of {actual[0]}"
        )
    check_fields(document, path, structure(apiVersion=TEXT, kind=TEXT, **fields))
    return document


def read_yaml(content: bytes, path: Path, kind: str) -> Object:
    """Return the only document of a file. Raise ConfigurationError for what is not an object, and for repeated keys."""
    try:
        document = yaml.load(content, Loader=StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{path} is not YAML: {first_line(error)}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: expected an object of kind {kind}, found {type(document).__name__}")
    return document


def check_fields(document: Object, path: Path, fields: Object) -> None:
    """Raise ConfigurationError for a wrong type or an unknown field of a part of a document."""
    if error := decoding_error(document, fields):
        raise ConfigurationError(f"{path}: {error}")


def decoding_error(document: Object, fields: Object) -> str:
    """Return the wrong type or the unknown fields of a document; empty if it has none."""
    try:
        unknown = Decoders(quantity=str).of(Schema(fields))(document)
    except (DecodeError, RecursionError) as error:
        return str(error)
    if not unknown:
        return ""
    return "strict decoding error: " + ", ".join(f'unknown field "{field}"' for field in unknown)


def check(path: Path, errs: Sequence[FieldError]) -> None:
    """Raise ConfigurationError for the errors of a document, in Kubernetes' words."""
    if errs:
        texts = list(dict.fromkeys(map(str, errs)))
        raise ConfigurationError(f"{path}: {texts[0] if len(texts) == 1 else '[' + ', '.join(texts) + ']'}")


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that occurs twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is not text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f'key "{key.value}" already set', key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def first_line(error: Exception) -> str:
    """Return one line: a YAML error quotes the document, which may hold secrets."""
    mark, message = getattr(error, "problem_mark", None), getattr(error, "problem", None) or type(error).__name__
    return f"line {mark.line + 1}: {message}" if mark is not None else str(message)
