"""Parses the body of a patch in one of its four content types."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from pinnace.model import errors
from pinnace.model.patches.json_and_merge import unknown_patch_fields
from pinnace.server.request.body import MalformedBody, check_containers, parse_json, repeated_fields
from pinnace.server.request.yaml_body import YamlError, read_yaml
from pinnace.server.write.edits import APPLY_PATCHES, APPLY_YAML, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

_FORMS = frozenset((JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_YAML))
_WITHOUT_STRATEGIC = (JSON_PATCH, MERGE_PATCH, APPLY_YAML)
_GO_FORMS = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


class UnknownPatch(errors.ApiError):
    """A content type of patches that the server does not support."""

    code, reason = 415, "UnsupportedMediaType"
    always_shows_details = True

    def __init__(self) -> None:
        super().__init__("415: Unsupported Media Type")


def patch_type(content_type: str, *, takes_strategic: bool) -> str:
    media_type = content_type.partition(";")[0]  # As it is written: Kubernetes does not ignore case here.
    if not takes_strategic and media_type not in _WITHOUT_STRATEGIC:
        raise errors.UnsupportedMediaType(_WITHOUT_STRATEGIC)
    if media_type not in _FORMS:
        raise UnknownPatch()
    return media_type


class Patch(NamedTuple):
    document: Any
    """A list of operations for a JSON patch, an object for every other type."""
    oddities: tuple[str, ...] = ()
    """One message for each repeated field (the last one wins) and for each unknown field of an operation."""


def read_patch(body: bytes, media_type: str) -> Patch:
    if media_type in APPLY_PATCHES:
        if body[:1] == b"{":  # Most clients send JSON as YAML, which parses ten times faster as JSON.
            with suppress(MalformedBody):
                applied = parse_json(body)
                check_containers(applied, body)
                return Patch(applied, read_yaml(body).repeated if repeated_fields(body, applied) else ())
        try:
            applied, repeated = read_yaml(body)
            check_containers(applied, body)
        except YamlError as err:
            raise errors.BadRequest(f"error decoding YAML: error converting YAML to JSON: {err}") from None
        if applied is not None and not isinstance(applied, dict):
            raise errors.BadRequest(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
                f"{_GO_FORMS.get(type(applied), 'null')} into Go value of type map[string]interface {{}}"
            )
        return Patch(applied, repeated)
    lead = "" if media_type == STRATEGIC_PATCH else "error decoding patch: "
    try:
        document = parse_json(body)
        check_containers(document, body)
    except MalformedBody as err:
        raise errors.BadRequest(f"{lead}{err}") from None
    wanted, described = (
        (list, "[]handlers.jsonPatchOp") if media_type == JSON_PATCH else (dict, "map[string]interface {}")
    )
    if document is None and media_type != MERGE_PATCH:
        return Patch(wanted())  # Go decodes null as an empty map or list.
    if document is None:
        raise errors.BadRequest("Invalid JSON Patch")
    if not isinstance(document, wanted):
        found = _GO_FORMS.get(type(document), "null")
        raise errors.BadRequest(f"{lead}json: cannot unmarshal {found} into Go value of type {described}")
    repeated = repeated_fields(body, document)
    if isinstance(document, list):
        told = (f'json patch duplicate field "{path}"' for path in repeated)
        return Patch(document, (*told, *unknown_patch_fields(document)))
    return Patch(document, tuple(f'duplicate field "{path}"' for path in repeated))
