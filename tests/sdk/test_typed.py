"""The client's verbs with instances of a class, in process and over HTTP."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from tests.sdk.websites import Website, WebsiteSpec

from pinnace.model import errors
from pinnace.sdk import Metadata, Typed
from pinnace.testing.cluster import Cluster


def site(name: str, replicas: int = 1) -> Website:
    spec = WebsiteSpec(git_repo="https://example.com/blog.git", replicas=replicas)
    return Website(metadata=Metadata(name=name, namespace="default"), spec=spec)


@pytest.fixture
async def websites(cluster: Cluster) -> Typed[Website]:
    await cluster.client.create(Website.crd())
    await cluster.settle()
    return Typed(cluster.client, Website)


async def test_instances_go_in_and_come_out(websites: Typed[Website]) -> None:
    made = await websites.create(site("blog"))
    assert (type(made), made.metadata.generation, made.status.ready) == (Website, 1, 0)
    made.spec.replicas = 3
    changed = await websites.update(made)
    with pytest.raises(errors.Conflict):
        await websites.update(made)
    changed.status.ready = 2
    await websites.update_status(changed)
    seen = await websites.get("blog")
    assert (seen.spec.replicas, seen.status.ready) == (3, 2)
    assert (await websites.patch("blog", {"spec": {"replicas": 4}})).spec.replicas == 4
    with pytest.raises(errors.Invalid, match=r"spec\.replicas"):
        await websites.patch("blog", {"spec": {"replicas": 101}})
    applied = await websites.apply(seen, field_manager="me", force=True)
    assert (applied.spec.replicas, applied.status.ready) == (3, 2)
    await websites.delete("blog")
    assert await websites.get_or_none("blog") is None


async def test_many_come_at_once_or_one_by_one_over_pages(websites: Typed[Website]) -> None:
    names = [f"site-{number}" for number in range(5)]
    for name in names:
        await websites.create(site(name))
    assert [one.name for one in await websites.list()] == names
    assert [one.name async for one in websites.each(page=2)] == names
    assert await websites.list(namespace="kube-system") == []


async def test_what_happens_is_followed(websites: Typed[Website]) -> None:
    await websites.create(site("old"))
    async with aclosing(websites.follow()) as told:
        what, one = await anext(told)
        assert (what, one.name) == ("ADDED", "old")
        await websites.patch("old", {"spec": {"replicas": 2}})
        what, one = await anext(told)
        assert (what, one.spec.replicas) == ("MODIFIED", 2)
        await websites.delete("old")
        assert (await anext(told))[0] == "DELETED"
