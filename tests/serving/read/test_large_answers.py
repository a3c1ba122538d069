"""Large answers are made in slices: the bytes are the same, and other requests do not wait for them."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import orjson
import pytest
import yaml
from tests.growth import no_collection
from tests.server.in_process import CONFIG_MAPS, TABLE, InProcess, Object, config_map

from pinnace.process.work_slices import SLICE_SECONDS, SliceQueue

COUNT = 1500
MOST_TURNS = 8
"""Turns of the loop that a write may take: one of them is the first to fill caches, and others wait for a slice."""
FORMATS = {
    "table": ("", TABLE),
    "table with objects": ("includeObject=Object", TABLE),
    "yaml": ("", "application/yaml"),
    "pretty": ("pretty=true", "application/json"),
    "table as yaml": ("", "application/yaml;as=Table;v=v1;g=meta.k8s.io"),
    "selected": ("labelSelector=odd!=x", "application/json"),
    "selected table": ("labelSelector=odd!=x", TABLE),
    "selected by index": ("labelSelector=odd=1", "application/json"),
    "metadata": ("", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
}
by_format = pytest.mark.parametrize(("query", "accept"), FORMATS.values(), ids=FORMATS)


@pytest.fixture
async def large(api: InProcess) -> AsyncIterator[InProcess]:
    for number in range(COUNT):
        obj = config_map(f"cm-{number:05}", data={f"key-{at}": f"some text {at}" for at in range(20)})
        obj["metadata"]["labels"] = {"odd": str(number % 2)}
        await api.made(CONFIG_MAPS, obj)
    yield api


@contextmanager
def turns() -> Iterator[list[float]]:
    """Collect the CPU time of each turn of the loop."""
    loop, spent = asyncio.get_running_loop(), list[float]()
    last = time.thread_time()
    is_on = True

    def turn() -> None:
        nonlocal last
        now = time.thread_time()
        spent.append(now - last)
        last = now
        if is_on:
            loop.call_soon(turn)

    loop.call_soon(turn)
    try:
        yield spent
    finally:
        is_on = False


@by_format
async def test_a_write_does_not_wait_for_lists_of_other_clients(large: InProcess, query: str, accept: str) -> None:
    with no_collection(), turns() as spent:
        lists = [
            asyncio.create_task(
                large.plane.local().request(
                    "GET", f"{CONFIG_MAPS}?{query}&limit={COUNT + number}", b"", {"accept": accept}
                )
            )
            for number in range(8)
        ]
        await asyncio.sleep(0)
        written = 0
        while not all(reply.done() for reply in lists):
            assert (await large.post(CONFIG_MAPS, config_map(f"new-{written}", data={}))).status == 201
            written += 1
            await asyncio.sleep(0)  # A write in process need not wait for anything.
    assert [(await reply).status for reply in lists] == [200] * 8
    assert len(spent) > 3, "the lists were made in one piece"
    assert written * MOST_TURNS > len(spent), "the lists did not give way to the writes"
    assert max(spent) < 0.25


async def test_the_answers_in_slices_are_the_same(large: InProcess) -> None:
    plain = (await large.get(CONFIG_MAPS)).json
    as_yaml = await large.get(CONFIG_MAPS, accept="application/yaml")
    assert yaml.load(as_yaml.body, yaml.CSafeLoader) == plain
    pretty = await large.get(f"{CONFIG_MAPS}?pretty=true")
    assert pretty.body == orjson.dumps(plain, option=orjson.OPT_INDENT_2)
    table = (await large.get(CONFIG_MAPS, accept=TABLE)).json
    assert [row["cells"][0] for row in table["rows"]] == [item["metadata"]["name"] for item in plain["items"]]
    few = (await large.get(f"{CONFIG_MAPS}?limit=20", accept=TABLE)).json
    assert without_ages(few) == without_ages(table)[:20]
    packed = await large.get(CONFIG_MAPS, accept=TABLE, accept_encoding="gzip")
    assert without_ages(orjson.loads(gzip.decompress(packed.body))) == without_ages(table)


def without_ages(table: Object) -> list[Object]:
    """Return the rows of a table without their last cell: time passes between two answers."""
    return [{**row, "cells": row["cells"][:-1]} for row in table["rows"]]


@pytest.mark.parametrize("accept", ["application/json", TABLE])
async def test_pages_of_a_selection_in_slices_follow_each_other(large: InProcess, accept: str) -> None:
    names: list[str] = []
    token = ""
    while True:
        page = (await large.get(f"{CONFIG_MAPS}?labelSelector=odd!=0&limit=400&continue={token}", accept=accept)).json
        rows = page["rows"] if "rows" in page else page["items"]
        names += [(row.get("object") or row)["metadata"]["name"] for row in rows]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert [name for name in names if name.startswith("cm-")] == [f"cm-{n:05}" for n in range(1, COUNT, 2)]


async def test_a_kept_selection_is_made_anew_after_a_change(large: InProcess) -> None:
    target = f"{CONFIG_MAPS}?labelSelector=odd=1,new!=x"
    before = await large.get(target)
    again = await large.get(target)
    assert again.json == before.json
    await large.delete(f"{CONFIG_MAPS}/cm-00001")
    after = await large.get(target)
    assert after.names == before.names[1:]
    assert int(after.version) > int(before.version)


async def test_a_turn_of_the_loop_has_one_slice_and_all_answers_take_turns() -> None:
    queue, order = SliceQueue(), list[str]()

    async def work(name: str) -> None:
        slices = queue.begin()
        for _ in range(3):
            await slices.pause()
            order.append(name)
            end = time.perf_counter() + SLICE_SECONDS
            while time.perf_counter() < end:
                pass

    tasks = [asyncio.create_task(work(name)) for name in "abc"]
    await asyncio.sleep(0)
    left = asyncio.create_task(work("left"))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(*tasks)
    assert order == list("abc" * 3)
