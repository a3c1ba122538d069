"""A kind that an operator serves itself, for the tests of such APIs."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from pydantic import field_validator

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.sdk import CustomResource, Field, Memory, Model, Operator
from pinnace.testing.cluster import Cluster

KIND = "kitchen.example.com/v1/Recipe"
ROOT = "/apis/kitchen.example.com/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


class RecipeSpec(Model):
    minutes: int = Field(default=10, ge=1, description="How long it cooks.")
    steps: list[str] = Field(default_factory=list)
    dish: str = "plate"

    @field_validator("dish")
    @classmethod
    def is_clean(cls, dish: str) -> str:
        if dish == "dirty":
            raise ValueError("wash it first")
        return dish


class RecipeStatus(Model):
    cooked: int = 0


class Recipe(
    CustomResource[RecipeSpec, RecipeStatus],
    group="kitchen.example.com",
    version="v1",
    short_names=["rcp"],
    columns=[".spec.minutes", ".status.cooked"],
    selectable=[".spec.dish"],
):
    """How a dish is made."""


class Replicas(Model):
    replicas: int = 1


class Scaled(CustomResource[Replicas, Replicas], group="kitchen.example.com", version="v1", scale=True):
    """Cannot be served."""


def recipe(name: str = "soup", **spec: Any) -> Object:
    return {"apiVersion": "kitchen.example.com/v1", "kind": "Recipe", "metadata": {"name": name}, "spec": spec}


def kitchen(backend: Any = None) -> Operator:
    operator = Operator("kitchen")
    operator.serves(Recipe, Memory() if backend is None else backend)
    return operator


@pytest.fixture
async def client(cluster: Cluster) -> Client:
    """Of a cluster with an API for recipes, which are in memory."""
    await cluster.run(kitchen())
    return cluster.client


async def read(client: Client, path: str, accept: str = "*/*") -> Any:
    return orjson.loads(await client.read(path, accept=accept))
