"""Quotas: the usage that is counted, the words of a refusal, and that concurrent writes never get more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.server.in_process import (
    CONFIG_MAPS,
    PODS,
    SERVICES,
    InProcess,
    Object,
    config_map,
    control_plane,
    pod,
    service,
    together,
)

from pinnace.cluster.controllers import controllers_of
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Guard, Store

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@asynccontextmanager
async def with_quota_controller(store: Store | None = None) -> AsyncIterator[InProcess]:
    async with control_plane(store) as api:
        manager = controllers_of(api.plane, None, only={"resourcequota-controller"})
        async with manager.running():
            yield api


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with with_quota_controller() as api:
        yield api


def quota(name: str = "q", **spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec}


def asking(name: str, **requests: str) -> Object:
    body = pod(name)
    body["spec"]["containers"][0]["resources"] = {"requests": requests}
    return body


async def used(api: InProcess, **wanted: str) -> None:
    """Wait until the quota says that this much is used."""
    async with asyncio.timeout(60):
        while True:
            status = (await api.get(f"{QUOTAS}/q")).json.get("status") or {}
            if wanted.items() <= (status.get("used") or {}).items():
                return
            await asyncio.sleep(0)


async def test_a_quota_counts_what_comes_and_goes(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map("before"))
    await api.made(QUOTAS, quota(hard={"configmaps": "2", "count/services": "5"}))
    await used(api, configmaps="1", **{"count/services": "1"})  # The API's own service is there from the start.
    await api.made(CONFIG_MAPS, config_map("one"))
    await used(api, configmaps="2")
    refused = await api.post(CONFIG_MAPS, config_map("two"))
    assert (refused.status, refused.message) == (
        403,
        'configmaps "two" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, '
        "limited: configmaps=2",
    )
    await api.delete(f"{CONFIG_MAPS}/before")
    await used(api, configmaps="1")
    assert (await api.post(CONFIG_MAPS, config_map("two"))).status == 201


async def test_a_quota_adds_up_what_pods_ask_for(api: InProcess) -> None:
    await api.made(QUOTAS, quota(hard={"pods": "5", "requests.cpu": "1", "memory": "1Gi"}))
    await api.made(PODS, asking("one", cpu="600m", memory="512Mi"))
    await used(api, pods="1", memory="512Mi", **{"requests.cpu": "600m"})
    refused = await api.post(PODS, asking("two", cpu="500m", memory="1Gi"))
    assert refused.message == (
        'pods "two" is forbidden: exceeded quota: q, requested: memory=1Gi,requests.cpu=500m, '
        "used: memory=512Mi,requests.cpu=600m, limited: memory=1Gi,requests.cpu=1"
    )
    silent = await api.post(PODS, pod("three"))
    assert silent.message == (
        'pods "three" is forbidden: failed quota: q: must specify memory for: main; requests.cpu for: main'
    )
    await api.patch(f"{PODS}/one/status", {"status": {"phase": "Succeeded"}})
    await used(api, pods="0", memory="0")


@pytest.mark.parametrize(
    ("scope", "counted", "uncounted"),
    [
        ("BestEffort", {}, {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}}]}),
        ("Terminating", {"activeDeadlineSeconds": 5}, {}),
        ("NotTerminating", {}, {"activeDeadlineSeconds": 5}),
    ],
)
async def test_a_scope_says_which_pods_are_meant(
    api: InProcess, scope: str, counted: Object, uncounted: Object
) -> None:
    await api.made(QUOTAS, quota(hard={"pods": "1"}, scopes=[scope]))
    await api.made(PODS, pod("one", **counted))
    await api.made(PODS, pod("other", **uncounted))
    assert (await api.post(PODS, pod("two", **counted))).status == 403
    await used(api, pods="1")


async def test_a_priority_class_can_have_a_quota_of_its_own(api: InProcess) -> None:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    await api.made(QUOTAS, quota(hard={"pods": "1"}, scopeSelector={"matchExpressions": [expression]}))
    await api.made(PODS, pod("one"))
    await api.made(PODS, pod("two", priorityClassName="system-node-critical"))
    assert (await api.post(PODS, pod("three", priorityClassName="system-node-critical"))).status == 403


async def test_services_are_charged_when_they_become_more(api: InProcess) -> None:
    await api.made(QUOTAS, quota(hard={"services.nodeports": "1", "services": "9"}))
    await api.made(SERVICES, service("one", type="NodePort"))
    await api.made(SERVICES, service("two"))
    refused = await api.patch(f"{SERVICES}/two", {"spec": {"type": "NodePort"}})
    assert refused.message == (
        'services "two" is forbidden: exceeded quota: q, requested: services.nodeports=1, '
        "used: services.nodeports=1, limited: services.nodeports=1"
    )


def resource_claim(name: str, *requests: Object) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": f"r{at}", **request} for at, request in enumerate(requests)]}},
    }


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        pytest.param([{"exactly": {"deviceClassName": "gpu"}}], "1", id="one by default"),
        pytest.param([{"exactly": {"deviceClassName": "gpu", "count": 3}}] * 2, "6", id="counts of requests add up"),
        pytest.param([{"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}], "32", id="all means the most"),
        pytest.param(
            [
                {
                    "firstAvailable": [
                        {"name": "a", "deviceClassName": "gpu", "count": 4},
                        {"name": "b", "deviceClassName": "gpu", "count": 2},
                        {"name": "c", "deviceClassName": "other", "count": 9},
                    ]
                }
            ],
            "4",
            id="the largest of alternatives",
        ),
        pytest.param([{"exactly": {"deviceClassName": "other"}}], "0", id="another class"),
    ],
)
async def test_devices_of_a_class_are_counted_and_limited(api: InProcess, requests: list[Object], devices: str) -> None:
    limited = "gpu.deviceclass.resource.k8s.io/devices"
    await api.made(QUOTAS, quota(hard={limited: "32"}))
    await used(api, **{limited: "0"})
    await api.made(RESOURCE_CLAIMS, resource_claim("first", *requests))
    await used(api, **{limited: devices})
    refused = await api.post(
        RESOURCE_CLAIMS, resource_claim("second", {"exactly": {"deviceClassName": "gpu", "count": 33}})
    )
    assert (refused.status, refused.message) == (
        403,
        f'resourceclaims.resource.k8s.io "second" is forbidden: exceeded quota: q, requested: {limited}=33, '
        f"used: {limited}={devices}, limited: {limited}=32",
    )
    await api.delete(f"{RESOURCE_CLAIMS}/first")
    await used(api, **{limited: "0"})


async def test_devices_that_pods_request_without_a_claim_are_counted(api: InProcess) -> None:
    limited = "requests.deviceclass.resource.kubernetes.io/gpu"
    await api.made(QUOTAS, quota(hard={limited: "1"}))
    await used(api, **{limited: "0"})
    resources = {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}
    container = {"name": "main", "image": "example.com/web:1", "resources": resources}
    first = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"}, "spec": {"containers": [container]}}
    await api.made(PODS, first)
    await used(api, **{limited: "1"})
    refused = await api.post(PODS, {**first, "metadata": {"name": "second"}})
    assert (refused.status, f"requested: {limited}=1, used: {limited}=1" in refused.message) == (403, True)


async def test_without_its_controller_the_status_of_a_quota_is_left_to_another() -> None:
    async with control_plane() as api:
        await api.made(QUOTAS, quota(hard={"configmaps": "9", "example.com/other": "3"}))
        foreign = {"hard": {"configmaps": "9", "example.com/other": "3"}, "used": {"example.com/other": "2"}}
        await api.patch(f"{QUOTAS}/q/status", {"status": foreign})
        await api.made(CONFIG_MAPS, config_map("one"))
        await api.made(CONFIG_MAPS, config_map("two"))
        await used(api, configmaps="2", **{"example.com/other": "2"})  # As in Kubernetes, admission adds its writes.
        await api.patch(f"{QUOTAS}/q/status", {"status": {"used": {"configmaps": "7"}}})
        watch = await api.watch(f"{QUOTAS}?watch=true&resourceVersion={(await api.get(QUOTAS)).version}")
        await api.delete(f"{CONFIG_MAPS}/one")
        await api.made(CONFIG_MAPS, config_map("three"))
        await api.patch(f"{QUOTAS}/q", {"metadata": {"labels": {"a": "b"}}})
        await api.patch(f"{QUOTAS}/q/status", {"status": {"used": {"configmaps": "0"}}})
        await api.made(CONFIG_MAPS, config_map("four"))
        seen = await watch.until(lambda event: event["object"]["status"]["used"]["configmaps"] == "3")
        counts = [event["object"]["status"]["used"]["configmaps"] for event in seen]
        # Admission counts behind the writes: `three` may be counted before the next status, after it, or with `four`.
        assert (counts[0], counts[-1]) == ("7", "3")
        assert set(counts) <= {"7", "0", "2", "3"}, "neither a deletion nor a label changes the count"


async def test_many_at_once_never_get_more_than_there_is(api: InProcess) -> None:
    await api.made(QUOTAS, quota(hard={"configmaps": "7"}))
    replies = await together(*(api.post(CONFIG_MAPS, config_map(f"c{i}")) for i in range(50)))
    assert sorted(reply.status for reply in replies) == [201] * 7 + [403] * 43
    await used(api, configmaps="7")


async def test_a_write_that_stores_nothing_uses_no_quota(api: InProcess) -> None:
    await api.made(QUOTAS, quota(hard={"configmaps": "2"}))
    await api.made(CONFIG_MAPS, config_map("one"))
    assert (await api.post(CONFIG_MAPS, config_map("one"))).status == 409
    assert (await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("two"))).status == 201
    await api.made(CONFIG_MAPS, config_map("two"))
    assert (await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("three"))).status == 403


async def test_a_status_that_a_user_writes_is_corrected(api: InProcess) -> None:
    await api.made(QUOTAS, quota(hard={"configmaps": "2"}))
    await used(api, configmaps="0")
    await api.patch(f"{QUOTAS}/q/status", {"status": {"used": {"configmaps": "9"}}})
    await used(api, configmaps="0")


async def test_a_quota_that_changes_or_goes_is_followed(api: InProcess) -> None:
    await api.made(QUOTAS, quota(hard={"configmaps": "0"}))
    assert (await api.post(CONFIG_MAPS, config_map("one"))).status == 403
    await api.patch(f"{QUOTAS}/q", {"spec": {"hard": {"configmaps": "1"}}})
    assert (await api.post(CONFIG_MAPS, config_map("one"))).status == 201
    assert (await api.post(CONFIG_MAPS, config_map("two"))).status == 403
    await api.delete(f"{QUOTAS}/q")
    assert (await api.post(CONFIG_MAPS, config_map("two"))).status == 201


class SlowStore(MemoryStore):
    """A store that commits when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.was_called = asyncio.Event()

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        if "/configmaps/" in key:
            self.was_called.set()
            return await asyncio.shield(asyncio.create_task(self._later(key, value, expected)))
        return await super().put(key, value, expected=expected)

    async def _later(self, key: str, value: bytes, expected: int | None) -> int:
        await self.may_commit.wait()
        return await super().put(key, value, expected=expected)


async def test_a_client_that_goes_away_leaves_no_gap_for_another() -> None:
    store = SlowStore()
    async with with_quota_controller(store) as api:
        await api.made(QUOTAS, quota(hard={"configmaps": "1"}))
        store.may_commit.clear()
        gone = asyncio.create_task(api.post(CONFIG_MAPS, config_map("one")))
        await store.was_called.wait()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert (await api.post(CONFIG_MAPS, config_map("two"))).status == 403
        store.may_commit.set()
        await used(api, configmaps="1")
        assert (await api.get(CONFIG_MAPS)).names == ["one"]
