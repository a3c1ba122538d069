"""Finished Jobs with a time to live are deleted when it is over, with their pods."""

from __future__ import annotations

from tests.controllers.batch.jobs import JOB, Hand, job

from pinnace.testing.cluster import Cluster


async def test_a_finished_job_lives_as_long_as_it_says(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(ttlSecondsAfterFinished=60))
    await cluster.advance(100)
    (pod,) = await hand.active()
    await hand.end(pod)
    await cluster.advance(59)
    assert await hand.status()
    await cluster.advance(1)
    assert await cluster.client.get_or_none(JOB, "work") is None
    assert await hand.pods() == []


async def test_a_time_to_live_of_zero_deletes_at_once(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job(ttlSecondsAfterFinished=0, backoffLimit=0))
    (pod,) = await hand.active()
    await hand.end(pod, code=1)
    assert await cluster.client.get_or_none(JOB, "work") is None


async def test_a_time_to_live_that_is_changed_counts_from_the_end(cluster: Cluster, hand: Hand) -> None:
    await hand.create(job())
    (pod,) = await hand.active()
    await hand.end(pod)
    await cluster.advance(3600)
    assert await hand.status()
    await cluster.client.patch(JOB, "work", {"spec": {"ttlSecondsAfterFinished": 7200}})
    await cluster.advance(3599)
    assert await hand.status()
    await cluster.advance(1)
    assert await cluster.client.get_or_none(JOB, "work") is None
