"""Recent lists are reused while nothing has changed, never longer, and their number is limited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import orjson
import pytest

from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.settings import Settings
from pinnace.serving.messages import Response
from pinnace.serving.read.continue_tokens import Extent
from pinnace.serving.read.reader import MOST_BYTES, RecentPage, RecentPages

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def cluster() -> AsyncIterator[RunningCluster]:
    async with running(Settings(controllers=False)) as cluster:
        yield cluster


def whole(answer: Response) -> Any:
    body = answer.body
    return orjson.loads(body if isinstance(body, bytes) else b"".join(body))


def items(answer: Response) -> list[bytes]:
    """Return the pieces of a list that hold its items."""
    assert isinstance(answer.body, list)
    return answer.body[1:]


def held_bytes(*answers: Response) -> int:
    """Return the memory that answers need together: a piece that several have counts once."""
    pieces = {id(piece): len(piece) for answer in answers for piece in answer.body if isinstance(piece, bytes)}
    return sum(pieces.values())


def page(text: bytes, *, changed: int = 1) -> RecentPage:
    return RecentPage([text], Extent(), changed)


def test_empty_pages_are_not_kept_without_end() -> None:
    pages = RecentPages()
    for number in range(2000):
        pages.keep((number,), page(b""))
    assert pages.get((0,)) is None
    assert pages.get((1999,)) == page(b"")


def test_the_last_page_is_found() -> None:
    pages = RecentPages()
    pages.keep(("a",), page(b"x"))
    assert pages.get(("a",)) == page(b"x")
    assert pages.get(("b",)) is None
    pages.keep(("a",), page(b"y", changed=2))
    assert pages.get(("a",)) == page(b"y", changed=2)


def test_the_oldest_page_goes_first_and_a_large_page_is_kept_alone() -> None:
    pages = RecentPages(most_bytes=10)
    pages.keep(("a",), page(b"12345"))
    pages.keep(("b",), page(b"12345"))
    pages.keep(("a",), page(b"1234"))
    pages.keep(("c",), page(b"12"))
    assert pages.get(("a",)) is not None
    assert pages.get(("b",)) is None
    large = page(b"12345678901")
    pages.keep(("a",), large)
    assert pages.get(("a",)) is large
    assert pages.get(("c",)) is None
    pages.drop(("a",), page(b"12345678901"))
    assert pages.get(("a",)) is large
    pages.drop(("a",), large)
    assert pages.get(("a",)) is None


async def test_all_clients_of_a_large_list_are_sent_the_same_bytes(cluster: RunningCluster) -> None:
    local = cluster.plane.local()
    for number in range(10):
        body = orjson.dumps({"metadata": {"name": f"large-{number}"}, "data": {"a": "x" * 1_000_000}})
        made = await local.request("POST", CONFIG_MAPS, body, {"content-type": "application/json"})
        assert made.status == 201
    first, second = [items(await local.request("GET", CONFIG_MAPS)) for _ in range(2)]
    assert sum(map(len, first)) > MOST_BYTES
    assert list(map(id, first)) == list(map(id, second))
    await local.request("DELETE", f"{CONFIG_MAPS}/large-0")
    third = items(await local.request("GET", CONFIG_MAPS))
    assert sum(map(len, third)) < sum(map(len, first)) - 1_000_000


FORMATS = {
    "json": "application/json",
    "metadata": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "yaml": "application/yaml",
    "pretty": "application/json;pretty=1",
}


@pytest.mark.parametrize("accept", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_clients_share_bytes_in_each_format_though_objects_change(
    cluster: RunningCluster, accept: str, encoding: str
) -> None:
    local = cluster.plane.local()
    for number in range(900):
        annotations = {"text": f"{number} {uuid4()} " * 60}
        body = orjson.dumps({"metadata": {"name": f"cm-{number:04}", "annotations": annotations}})
        await local.request("POST", CONFIG_MAPS, body, {"content-type": "application/json"})
    answers = []
    for number in range(10):
        target = f"{CONFIG_MAPS}?limit={5000 + number}&pretty={'true' if 'pretty' in accept else 'false'}"
        answers.append(await local.request("GET", target, b"", {"accept": accept, "accept-encoding": encoding}))
        patch = orjson.dumps({"data": {"number": str(number)}})
        await local.request("PATCH", f"{CONFIG_MAPS}/cm-0500", patch, {"content-type": "application/merge-patch+json"})
    assert [answer.status for answer in answers] == [200] * 10
    single = held_bytes(answers[0])
    assert held_bytes(*answers) < 4 * single, f"one answer has {single} bytes, ten have {held_bytes(*answers)}"


async def test_a_list_shows_every_change_and_the_revision_of_its_moment(cluster: RunningCluster) -> None:
    local = cluster.plane.local()
    json = {"content-type": "application/json"}

    async def listed(query: str = "") -> tuple[str, list[str]]:
        result = whole(await local.request("GET", CONFIG_MAPS + query))
        return result["metadata"]["resourceVersion"], [item["metadata"]["name"] for item in result["items"]]

    first, names = await listed()
    assert await listed() == (first, names)
    made = await local.request("POST", CONFIG_MAPS, b'{"metadata":{"name":"zz","labels":{"a":"b"}}}', json)
    revision = whole(made)["metadata"]["resourceVersion"]
    assert await listed() == (revision, [*names, "zz"])
    assert (await listed("?labelSelector=a%3Db"))[1] == ["zz"]
    assert (await listed("?labelSelector=a%3Dc"))[1] == []
    # A change elsewhere moves the revision, and nothing else.
    await local.request("POST", "/api/v1/namespaces/default/secrets", b'{"metadata":{"name":"other"}}', json)
    later, same = await listed()
    assert int(later) > int(revision)
    assert same == [*names, "zz"]
    await local.request("DELETE", f"{CONFIG_MAPS}/zz")
    assert (await listed())[1] == names
    assert (await listed("?labelSelector=a%3Db"))[1] == []


async def test_pages_of_one_list_go_on_from_one_another(cluster: RunningCluster) -> None:
    local = cluster.plane.local()
    for name in "abc":
        body = orjson.dumps({"metadata": {"name": name}})
        await local.request(
            "POST", "/api/v1/namespaces/kube-public/configmaps", body, {"content-type": "application/json"}
        )
    path = "/api/v1/namespaces/kube-public/configmaps?limit=2"

    async def read(path: str) -> Any:
        return whole(await local.request("GET", path))

    for _ in range(2):
        first = await read(path)
        rest = await read(f"{path}&continue={first['metadata']['continue']}")
        names = [item["metadata"]["name"] for item in first["items"] + rest["items"]]
        assert [name for name in names if len(name) == 1] == ["a", "b", "c"]
        assert first["metadata"]["remainingItemCount"] == len(names) - 2
