"""Concurrent writes of one object: each is based on the result of the one before."""

from __future__ import annotations

import asyncio

from tests.server.in_process import InProcess, together


async def test_fifty_writers_count_together_and_no_step_is_lost(api: InProcess) -> None:
    target = "/api/v1/namespaces/default/configmaps"
    await api.made(target, {"metadata": {"name": "counter"}, "data": {"count": "0"}})
    conflicts = 0
    # A slow request makes the others take turns, one per turn of the loop: they would not meet without the barrier.
    all_have_read = asyncio.Barrier(50)

    async def increment() -> None:
        nonlocal conflicts
        is_first = True
        while True:
            current = (await api.get(f"{target}/counter")).json
            if is_first:
                is_first = False
                await all_have_read.wait()
            current["data"]["count"] = str(int(current["data"]["count"]) + 1)
            reply = await api.put(f"{target}/counter", current)
            if reply.status == 200:
                return
            assert (reply.status, reply.json["reason"]) == (409, "Conflict")
            conflicts += 1

    await asyncio.gather(*(increment() for _ in range(50)))
    assert (await api.get(f"{target}/counter")).json["data"] == {"count": "50"}
    assert conflicts >= 49, "all have read the same version, and one can write it"


async def test_patches_of_different_keys_at_once_are_all_there(api: InProcess) -> None:
    target = "/api/v1/namespaces/default/configmaps"
    await api.made(target, {"metadata": {"name": "shared"}})
    replies = await together(*(api.patch(f"{target}/shared", {"data": {f"k{n}": str(n)}}) for n in range(50)))
    assert {reply.status for reply in replies} == {200}
    assert (await api.get(f"{target}/shared")).json["data"] == {f"k{n}": str(n) for n in range(50)}


async def test_of_many_who_create_one_name_one_does(api: InProcess) -> None:
    target = "/api/v1/namespaces/default/configmaps"
    replies = await together(
        *(api.post(target, {"metadata": {"name": "one"}, "data": {"n": str(n)}}) for n in range(30))
    )
    winners = [reply for reply in replies if reply.status == 201]
    assert sorted(reply.status for reply in replies) == [201] + [409] * 29
    assert (await api.get(f"{target}/one")).json == winners[0].json


async def test_of_many_who_delete_one_object_one_does(api: InProcess) -> None:
    target = "/api/v1/namespaces/default/configmaps"
    await api.made(target, {"metadata": {"name": "one"}})
    replies = await together(*(api.delete(f"{target}/one") for _ in range(30)))
    assert sorted(reply.status for reply in replies) == [200] + [404] * 29
