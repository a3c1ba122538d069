"""The built-in kinds and their parts as types: `from pinnace.sdk.kinds import Deployment, PodSpec`.

An object stays a plain dict. A kind is named by its type: `client.get(Deployment, "web")`, `@operator.reconcile(Pod)`.
Both are types of fields, too: `template: PodTemplateSpec` in a spec has Kubernetes' schema in the CRD.
"""

from __future__ import annotations

from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from pinnace.model import typed_objects
from pinnace.sdk.resources.models import BUILT_IN, REFUSED


class _BuiltIn(dict[str, Any]):
    """A built-in type as a class. Calling it returns a plain dict, as calling a TypedDict does."""

    def __new__(cls, *args: Any, **fields: Any) -> Any:
        return dict(*args, **fields)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Take any dict with names: the server checks the fields."""
        return core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        definition = typed_objects.definition_of(cls.__name__)
        if not definition:
            return {"type": "object", REFUSED: f"{cls.__name__} is no definition of Kubernetes; use dict[str, Any]"}
        return {"type": "object", BUILT_IN: definition}


def __getattr__(name: str) -> Any:
    typed = getattr(typed_objects, name)
    if not isinstance(typed, type) or not issubclass(typed, dict):
        return typed
    bases = (_BuiltIn,) if typed is dict else (_BuiltIn, typed)
    built_in = type(name, bases, {"__module__": __name__})
    globals()[name] = built_in
    return built_in
