"""A burst of work for one controller does not keep the others waiting."""

from __future__ import annotations

import asyncio

from tests.controllers.batch.jobs import JOB, job
from tests.controllers.workloads.objects import REPLICA_SET, workload
from tests.server.in_process import control_plane

from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import in_process_client

BURST = 1000


async def test_a_burst_of_jobs_does_not_hold_a_replica_set_up() -> None:
    async with control_plane() as api:
        client = in_process_client(api.plane.local())
        for number in range(BURST):
            await client.create(job(f"job-{number}", suspend=True))
        manager = controllers_of(api.plane, None, only=("job-controller", "replicaset-controller"))
        async with asyncio.timeout(60), manager.running():
            await client.create(workload(REPLICA_SET, replicas=3))
            while not (await client.get(REPLICA_SET, "web", namespace="default")).get("status", {}).get("replicas"):
                await asyncio.sleep(0)
            handled = sum("conditions" in (job.get("status") or {}) for job in await client.list(JOB))
            assert 0 < handled < BURST / 2
            await manager.settle()
        suspended = [obj for obj in await client.list(JOB) if obj["status"]["conditions"][0]["type"] == "Suspended"]
        assert len(suspended) == BURST
