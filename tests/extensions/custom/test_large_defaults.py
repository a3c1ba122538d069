"""Defaults of a schema cannot make one object, or an answer, out of proportion to the request."""

from __future__ import annotations

import pytest
from tests.extensions.definitions import BOATS, DEFINITIONS, TEXT, Cluster, boat, boats, shape, version
from tests.server.in_process import Object

from pinnace.kinds.catalog import resources
from pinnace.kinds.definitions import Definitions
from pinnace.model.errors import TooLarge
from pinnace.schema.crd.prune_and_default import MOST_DEFAULTED
from pinnace.serving.write.edits import MOST_STORED, encode

KEEPS: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFAULTS: dict[str, Object] = {
    "text": TEXT | {"default": "x" * 1_000_000},
    "object": KEEPS | {"default": {f"k{number}": "x" for number in range(20_000)}},
    "default inside a default": {
        "type": "array",
        "default": [{}] * 10,
        "items": {"type": "object", "properties": {"d": TEXT | {"default": "x" * 100_000}}},
    },
}


def holds(default: Object) -> Object:
    """A schema whose list has a default in each of its items."""
    return shape(holds={"type": "array", "items": {"type": "object", "properties": {"d": default}}})


@pytest.mark.parametrize("default", DEFAULTS.values(), ids=DEFAULTS)
async def test_an_object_whose_defaults_are_too_large_is_refused(cluster: Cluster, default: Object) -> None:
    await cluster.define(boats(version(schema=holds(default))))
    refused = await cluster.post(BOATS, boat("heavy", holds=[{}] * 3000))
    assert (refused.status, refused.json["message"]) == (
        413,
        f"Request entity too large: limit is {MOST_DEFAULTED} bytes of defaults",
    )
    await cluster.made(BOATS, boat("light", holds=[{}]))


async def test_a_patch_whose_defaults_are_too_large_is_refused(cluster: Cluster) -> None:
    await cluster.define(boats(version(schema=holds(DEFAULTS["text"]))))
    await cluster.made(BOATS, boat("light", holds=[{}]))
    refused = await cluster.patch(f"{BOATS}/light", {"spec": {"holds": [{}] * 3000}})
    assert refused.status == 413


async def test_stored_objects_are_served_without_the_defaults_that_are_too_large(cluster: Cluster) -> None:
    definition = await cluster.define(boats(version(schema=holds(KEEPS))))
    await cluster.made(BOATS, boat("heavy", holds=[{}] * 3000))
    before = await cluster.get(f"{DEFINITIONS}/boats.example.com")
    changed = before.json
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = holds(TEXT | {"default": "x" * 100_000})
    assert definition and (await cluster.put(f"{DEFINITIONS}/boats.example.com", changed)).status == 200
    items = (await cluster.get(BOATS)).json["items"][0]["spec"]["holds"]
    filled = [item for item in items if item]
    assert len(items) == 3000
    assert len(filled) == MOST_DEFAULTED // 100_000


async def test_an_object_that_a_webhook_makes_too_large_to_store_is_refused() -> None:
    resource = resources(Definitions.load("1.36"))[0]
    with pytest.raises(TooLarge, match=f"limit is {MOST_STORED} bytes for an object as it is stored"):
        encode({"metadata": {"name": "ours"}, "data": "x" * MOST_STORED}, resource)
