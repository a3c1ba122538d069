"""The OpenAPI of a served API: its hash, by which clients and the cluster keep the document."""

from __future__ import annotations

import orjson
import pytest

from pinnace.kinds.definitions import Definitions, minors
from pinnace.model.resources import Registry
from pinnace.sdk import CustomResource, Field, Model
from pinnace.sdk.api.kinds import ApiKind, built_in_parts
from pinnace.serving.discovery.openapi import OpenApi


def _index(description: str, definitions: Definitions) -> str:
    class RecipeSpec(Model):
        minutes: int = Field(description=description)

    class Recipe(CustomResource[RecipeSpec, None], group="kitchen.example.com", version="v1"):
        """How to cook."""

    registry = Registry()
    registry.add(ApiKind(Recipe, object(), built_in_parts(definitions)).resource)
    url: str = orjson.loads(OpenApi(registry, definitions).index().body)["paths"]["apis/kitchen.example.com/v1"][
        "serverRelativeURL"
    ]
    return url


@pytest.mark.parametrize(("after", "is_equal"), [("How long it cooks.", True), ("Its time.", False)])
def test_a_changed_class_has_another_hash(after: str, is_equal: bool) -> None:
    """Clients keep a document as long as its hash is served, also when the server restarts with another class."""
    definitions = Definitions.load(minors()[-1])
    assert (_index("How long it cooks.", definitions) == _index(after, definitions)) == is_equal
