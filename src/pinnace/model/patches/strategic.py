"""Strategic merge patch, with the API's errors."""

from __future__ import annotations

from typing import Any

from pinnace.model.errors import ApiError, BadRequest
from pinnace.model.objects import Object
from pinnace.model.patches.json_and_merge import PatchRefused
from pinnace.schema.merge.strategic import (
    DELETE_FROM,
    SET_ORDER,
    MalformedPatch,
    PatchError,
    UnacceptablePatch,
    strategic_merge,
)
from pinnace.schema.shape import Schema

_JSON_TYPES = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}


class PatchFailed(ApiError):
    """The patch contradicts the schema or the object. Kubernetes returns 500 for it."""

    code, reason = 500, ""


def strategic_merge_patch(document: Object, patch: Any, schema: Schema) -> Object:
    """Apply the patch and return the result. Neither argument is changed; untouched parts are shared.

    Raise BadRequest for an invalid patch, PatchRefused or PatchFailed for one that does not apply.
    """
    if patch is None:
        patch = {}
    if not isinstance(patch, dict):
        kind = _JSON_TYPES[type(patch)]
        raise BadRequest(f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
    try:
        return strategic_merge(document, patch, schema)
    except MalformedPatch as err:
        raise BadRequest(str(err)) from None
    except UnacceptablePatch as err:
        raise PatchRefused(str(err)) from None
    except PatchError as err:
        raise PatchFailed(str(err)) from None
    except ValueError as err:
        raise BadRequest(str(err)) from None


def strip_merged_lists(patch: Any) -> Any:
    """Return a patch without its merged ordered lists: Kubernetes prints only this part in errors."""
    if not isinstance(patch, dict):
        return patch
    merged = {name.partition("/")[2] for name in patch if name.startswith(f"{SET_ORDER}/")}
    gone = {directive for name in merged for directive in (name, f"{SET_ORDER}/{name}", f"{DELETE_FROM}/{name}")}
    return {name: strip_merged_lists(value) for name, value in patch.items() if name not in gone}
