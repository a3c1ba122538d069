"""The two versions of OpenAPI: how each writes parameters, operations and bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pinnace.model.objects import Object

ANY_TYPE = ("*/*",)


class Dialect(Protocol):
    """The differences between the versions of OpenAPI."""

    def parameter(self, name: str, place: str, type: str, description: str) -> Object: ...
    def operation(
        self, *, schema: str, codes: Mapping[str, str], produced: Sequence[str], consumed: Sequence[str] = ANY_TYPE
    ) -> Object:
        """Return the responses of an operation. Without a schema they are text."""

    def with_body(self, operation: Object, schema: str, media_types: Iterable[str], *, required: bool) -> None: ...


class OpenApiV3:
    def parameter(self, name: str, place: str, type: str, description: str) -> Object:
        parameter: Object = {"name": name, "in": place, "description": description}
        if place == "path":
            parameter["required"] = True
        return {**parameter, "schema": {"type": type, "uniqueItems": True}}

    def operation(
        self, *, schema: str, codes: Mapping[str, str], produced: Sequence[str], consumed: Sequence[str] = ANY_TYPE
    ) -> Object:
        content = self._content(schema, produced)
        responses: Object = {code: {"description": description, **content} for code, description in codes.items()}
        return {"responses": {**responses, "401": {"description": "Unauthorized"}}}

    def with_body(self, operation: Object, schema: str, media_types: Iterable[str], *, required: bool) -> None:
        body: Object = self._content(schema, media_types)
        operation["requestBody"] = {**body, "required": True} if required else body

    def _content(self, schema: str, media_types: Iterable[str]) -> Object:
        if not schema:
            return {"content": {media_type: {"schema": {"type": "string"}} for media_type in media_types}}
        reference = {"$ref": f"#/components/schemas/{schema}"}
        return {"content": {media_type: {"schema": reference} for media_type in media_types}}


class OpenApiV2:
    def parameter(self, name: str, place: str, type: str, description: str) -> Object:
        parameter: Object = {"uniqueItems": True, "type": type, "description": description, "name": name, "in": place}
        return {**parameter, "required": True} if place == "path" else parameter

    def operation(
        self, *, schema: str, codes: Mapping[str, str], produced: Sequence[str], consumed: Sequence[str] = ANY_TYPE
    ) -> Object:
        shape: Any = {"$ref": f"#/definitions/{schema}"} if schema else {"type": "string"}
        responses: Object = {code: {"description": description, "schema": shape} for code, description in codes.items()}
        return {
            **({"consumes": list(consumed)} if consumed else {}),
            "produces": list(produced),
            "schemes": ["https"],
            "responses": {**responses, "401": {"description": "Unauthorized"}},
        }

    def with_body(self, operation: Object, schema: str, media_types: Iterable[str], *, required: bool) -> None:
        body: Object = {"name": "body", "in": "body", "schema": {"$ref": f"#/definitions/{schema}"}}
        if required:
            body["required"] = True
        operation["parameters"] = [body, *operation.get("parameters", ())]
        operation["consumes"] = list(media_types)
