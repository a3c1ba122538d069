"""Faults by rule, in process and over HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.sdk.websites import website, website_operator

from pinnace.client.exchange import Retries
from pinnace.kinds.golang.field_numbers import decode_answer
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.schema.golang.protobuf import read_event, split_events
from pinnace.serving.local_streams import LocalStream
from pinnace.testing.cluster import ADMIN, Cluster, running_cluster
from pinnace.testing.faults import FaultRule, Faults, UnusedFault

DEPLOYMENT = "apps/v1/Deployment"


def config_map(name: str = "settings", **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.mark.parametrize(
    ("add", "error"),
    [
        (lambda faults: faults.conflict(verb="create", times=1), errors.Conflict),
        (lambda faults: faults.error(500, verb="create", times=1), errors.InternalError),
        (lambda faults: faults.error(504, verb="create", times=1), errors.Timeout),
        (lambda faults: faults.timeout(verb="create", times=1), errors.Timeout),
    ],
    ids=["conflict", "500", "504", "timeout"],
)
async def test_a_failed_write_writes_nothing(
    cluster: Cluster, add: Callable[[Faults], FaultRule], error: type[errors.ApiError]
) -> None:
    rule = add(cluster.faults)
    with pytest.raises(error):
        await cluster.client.create(config_map())
    with pytest.raises(errors.NotFound):
        await cluster.client.get("v1/ConfigMap", "settings")
    await cluster.client.create(config_map())
    assert (rule.count, rule.is_lifted) == (1, True)


async def test_a_timeout_after_the_write_has_written(cluster: Cluster) -> None:
    cluster.faults.timeout(committed=True, verb="create", times=1)
    with pytest.raises(errors.Timeout):
        await cluster.client.create(config_map())
    assert await cluster.client.get("v1/ConfigMap", "settings")


async def test_a_client_waits_as_retry_after_says(cluster: Cluster) -> None:
    cluster.faults.too_many_requests(retry_after=7, verb="create", times=1)
    creating = asyncio.create_task(cluster.client.create(config_map()))
    while not cluster.faults.injected:
        await asyncio.sleep(0)
    await cluster.clock.advance(6.9)
    assert not creating.done()
    while not creating.done():  # Over HTTP the answer takes a while.
        await cluster.clock.advance(1)
    assert (await creating)["metadata"]["name"] == "settings"


async def test_latency_is_by_the_clock_of_the_cluster(cluster: Cluster) -> None:
    cluster.faults.latency(30, verb="create", resource="configmaps", times=1)
    creating = asyncio.create_task(cluster.client.create(config_map()))
    while not cluster.faults.injected:
        await asyncio.sleep(0)
    await cluster.clock.advance(29)
    assert not creating.done()
    await cluster.clock.advance(1)
    await creating


@pytest.mark.parametrize(
    "options",
    [
        {"resource": "secrets"},
        {"name": "other-*"},
        {"namespace": "kube-system"},
        {"user": "jane"},
        {"client": "website-controller"},
        {"verb": "delete"},
    ],
    ids=str,
)
async def test_other_requests_are_left_alone(cluster: Cluster, options: dict[str, str]) -> None:
    rule = cluster.faults.add("never", _refuse, **options)  # type: ignore[arg-type]
    await cluster.client.create(config_map())
    assert rule.count == 0
    rule.count = 1  # This rule is meant to be unused.


async def _refuse(call: object) -> object:
    raise AssertionError("the rule must not match")


async def test_a_rule_is_for_a_user(cluster: Cluster) -> None:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    }
    await cluster.client.create(binding)
    cluster.faults.conflict(user="jane", resource="configmaps")
    with pytest.raises(errors.Conflict):
        await cluster.client_as("jane").create(config_map())
    await cluster.client.create(config_map())


async def test_a_rule_about_created_objects_reads_their_names(cluster: Cluster) -> None:
    cluster.faults.conflict(verb="create", name="web-*")
    await cluster.client.create(config_map("settings"))
    with pytest.raises(errors.Conflict):
        await cluster.client.create(config_map("web-1"))


async def test_a_rule_ends_with_its_block(cluster: Cluster) -> None:
    with cluster.faults.error(resource="configmaps", verb="create"), pytest.raises(errors.InternalError):
        await cluster.client.create(config_map())
    await cluster.client.create(config_map())


async def test_the_same_seed_fails_the_same_requests(cluster: Cluster) -> None:
    outcomes: list[list[int]] = []
    for _ in range(2):
        failed = []
        with cluster.faults.conflict(verb="update", probability=0.5, seed=7):
            made = await cluster.client.create(config_map(f"c-{len(outcomes)}"))
            for number in range(20):
                try:
                    made = await cluster.client.update({**made, "data": {"n": str(number)}})
                except errors.Conflict:
                    failed.append(number)
        outcomes.append(failed)
    assert outcomes[0] == outcomes[1]
    assert 3 < len(outcomes[0]) < 17


async def test_an_operator_gets_over_conflicts_and_lost_answers(cluster: Cluster) -> None:
    await cluster.run(website_operator())
    conflict = cluster.faults.conflict(verb="patch", client="website-controller", times=3)
    lost = cluster.faults.timeout(committed=True, client="website-controller", times=2)
    await cluster.client.create(website(replicas=2))
    await cluster.advance(60)
    assert (await cluster.client.get(DEPLOYMENT, "blog"))["spec"]["replicas"] == 2
    assert (conflict.count, lost.count) == (3, 2)
    assert "conflict: patch deployments default/blog by website-controller" in cluster.faults.report()


async def test_a_cut_watch_is_resumed(cluster: Cluster) -> None:
    await cluster.run(website_operator())
    cut = cluster.faults.cut_watch(client="website-controller", resource="websites", times=1)
    assert cut.count == 1
    await cluster.client.create(website())
    await cluster.advance(30)
    assert await cluster.client.get(DEPLOYMENT, "blog")


async def test_a_withheld_event_is_unseen_until_the_rule_is_lifted(cluster: Cluster) -> None:
    await cluster.run(website_operator())
    rule = cluster.faults.withhold_events(client="website-controller", resource="websites")
    await cluster.client.create(website())
    async with asyncio.timeout(60):
        while not rule.count:
            await asyncio.sleep(0.01)
    with pytest.raises(errors.NotFound):
        await cluster.client.get(DEPLOYMENT, "blog")
    rule.lift()
    await cluster.advance(30)
    assert await cluster.client.get(DEPLOYMENT, "blog")


async def test_delayed_events_keep_their_order(cluster: Cluster) -> None:
    rule = cluster.faults.delay_events(10, resource="configmaps", times=1)
    version = str(cluster.plane.store.revision)
    watch = cluster.client.watch("v1/ConfigMap", namespace="default", version=version)
    async with aclosing(watch), asyncio.timeout(60):
        first = asyncio.ensure_future(anext(watch))
        while not cluster.faults.watches or not any(watch.client == "test" for watch in cluster.faults.watches):
            await asyncio.sleep(0.01)
        for name in ("a", "b"):
            await cluster.client.create(config_map(name))
        assert rule.count == 1
        assert not first.done()
        await cluster.clock.advance(10)
        assert [(await first).snapshot.key.name, (await anext(watch)).snapshot.key.name] == ["a", "b"]


async def test_events_in_protobuf_are_withheld_and_expire_too(cluster: Cluster) -> None:
    rule = cluster.faults.withhold_events(resource="configmaps", name="hidden")
    headers = {"accept": "application/vnd.kubernetes.protobuf", "user-agent": "test"}
    stream = await cluster.plane.local(ADMIN).stream("/api/v1/namespaces/default/configmaps?watch=1", headers)
    assert isinstance(stream, LocalStream)
    for name in ("hidden", "seen"):
        await cluster.client.create(config_map(name))
    chunks = aiter(stream)
    async with asyncio.timeout(60):
        events = [read_event(event) for event in split_events(await anext(chunks))]
        assert [decode_answer(event.body)["metadata"]["name"] for event in events] == ["seen"]
        assert rule.count == 1
        rule.lift()
        (expired,) = [read_event(event) for event in split_events(await anext(chunks))]
    assert (expired.type, decode_answer(expired.body)["reason"]) == ("ERROR", "Expired")


async def test_stale_reads_show_the_past(cluster: Cluster) -> None:
    await cluster.client.create(config_map("old"))
    with cluster.faults.stale_reads(resource="configmaps"):
        await cluster.client.create(config_map("new"))
        names = {obj["metadata"]["name"] for obj in await cluster.client.list("v1/ConfigMap", namespace="default")}
        assert "old" in names
        assert "new" not in names
    assert await cluster.client.get("v1/ConfigMap", "new")


async def test_a_lost_lease_has_another_holder(cluster: Cluster) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}}
    made = await cluster.client.create({**lease, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}})
    cluster.faults.lose_lease("rival", name="leader", times=1)
    with pytest.raises(errors.Conflict):
        await cluster.client.update(made)
    obj = await cluster.client.get("coordination.k8s.io/v1/Lease", "leader")
    assert obj["spec"]["holderIdentity"] == "rival"


async def test_a_webhook_that_fails_stops_writes(cluster: Cluster) -> None:
    hook = {
        "name": "hook.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/validate"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    await cluster.client.create({**kind, "metadata": {"name": "hook"}, "webhooks": [hook]})
    cluster.faults.fail_webhook(name="*/validate", times=1)
    with pytest.raises(errors.InternalError, match="injected fault"):
        await cluster.client.create(config_map())


async def test_a_rule_that_never_happened_is_a_warning() -> None:
    with pytest.warns(UnusedFault, match=r"conflict \(verb=write, resource=nonsense\)"):
        async with running_cluster() as cluster:
            cluster.faults.conflict(resource="nonsense")


FAILING = """
async def test_it(cluster):
    cluster.faults.timeout(committed=True, verb="create", resource="configmaps")
    cluster.faults.conflict(resource="nonsense")
    await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
"""


def test_the_report_of_a_failed_test_names_the_faults(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto")
    (tmp_path / "test_it.py").write_text(FAILING)
    command = [sys.executable, "-m", "pytest", "-q"]
    page = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120).stdout
    for line in (
        "faults of cluster",
        "timeout after the write: create configmaps default/a by test",
        "never: conflict (verb=write, resource=nonsense)",
        "UnusedFault: this fault never happened: conflict (verb=write, resource=nonsense)",
    ):
        assert line in page


async def test_faults_do_not_reach_the_next_test() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedFault)
        async with running_cluster() as cluster:
            cluster.faults.error()
    async with running_cluster() as cluster:
        await cluster.client.create(config_map())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"probability": 2.0}, "from 0 to 1, not 2"), ({"verbs": "get"}, "a fault has no option verbs; expected verb,")],
)
async def test_a_bad_rule_is_refused(cluster: Cluster, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster.faults.conflict(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="500, 503 or 504"):
        cluster.faults.error(418)


async def test_503_is_retried_by_the_client(cluster: Cluster) -> None:
    rule = cluster.faults.error(503, verb="get", resource="namespaces", times=1)
    getting = asyncio.create_task(cluster.client.get("v1/Namespace", "default"))
    async with asyncio.timeout(60):
        while not getting.done():
            await asyncio.sleep(0)
            await cluster.clock.advance(1)
    assert (await getting)["metadata"]["name"] == "default"
    assert rule.count == 1
    assert Retries().attempts > 1


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        ("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        ("leases", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "shop"}}),
        (
            "clusterroles.rbac.authorization.k8s.io",
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "shop"}},
        ),
    ],
    ids=["namespaces", "leases", "roles"],
)
async def test_faults_happen_to_system_kinds_too(cluster: Cluster, resource: str, obj: Object) -> None:
    rule = cluster.faults.error(500, resource=resource, verb="create", times=1)
    with pytest.raises(errors.InternalError):
        await cluster.client.create(obj)
    await cluster.client.create(obj)
    await cluster.settle()
    assert rule.count == 1


async def test_controllers_get_over_faults_of_their_own_requests(cluster: Cluster) -> None:
    rule = cluster.faults.error(500, user="system:*", resource="serviceaccounts", verb="create", times=3)
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    await cluster.advance(60)
    assert await cluster.client.get("v1/ServiceAccount", "default", namespace="shop")
    assert rule.count == 3
