"""The scheduler of a cluster has the profiles of its KubeSchedulerConfiguration."""

from __future__ import annotations

import asyncio

from tests.server.in_process import PODS, InProcess

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object
from pinnace.scheduler.configuration import load

CONFIGURATION: Object = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"schedulerName": "default-scheduler"},
        {"schedulerName": "blind", "plugins": {"multiPoint": {"disabled": [{"name": "NodeAffinity"}]}}},
    ],
}


async def test_pods_are_scheduled_by_the_profile_that_they_name() -> None:
    settings = Settings(nodes=1, scheduler_configuration=load(CONFIGURATION))
    async with asyncio.timeout(120), running(settings) as cluster:
        server = InProcess(cluster.plane)
        for name in ("blind", "default-scheduler"):
            spec = {
                "schedulerName": name,
                "nodeSelector": {"no": "node"},
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "i"}],
            }
            while (await server.post(PODS, {"metadata": {"name": name}, "spec": spec})).status == 403:
                await asyncio.sleep(0.05)  # The service account is created in the background.
        while not (await server.get(f"{PODS}/blind")).json["spec"].get("nodeName"):
            await asyncio.sleep(0.05)
        while not (conditions := (await server.get(f"{PODS}/default-scheduler")).json["status"].get("conditions")):
            await asyncio.sleep(0.05)
        assert conditions[0]["reason"] == "Unschedulable"
