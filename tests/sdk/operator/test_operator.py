"""Operators at work in a real server of this process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml
from tests.sdk.websites import Website, website, website_operator

from pinnace.model import errors
from pinnace.sdk import Condition, Conditions, Context, CustomResource, Field, Key, Model, Operator
from pinnace.testing.cluster import Cluster

WEBSITE = "extensions.example.com/v1/Website"
DEPLOYMENT = "apps/v1/Deployment"


async def test_a_website_becomes_a_deployment_and_a_service_that_belong_to_it(cluster: Cluster) -> None:
    await cluster.run(website_operator())
    site = await cluster.client.create(website(replicas=3))
    await cluster.settle()
    deployment = await cluster.client.get(DEPLOYMENT, "blog")
    service = await cluster.client.get("v1/Service", "blog")
    assert deployment["spec"]["replicas"] == 3
    for owned in (deployment, service):
        (owner,) = owned["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (site["metadata"]["uid"], True)
    managers = [entry["manager"] for entry in service["metadata"]["managedFields"]]
    assert managers == ["website-controller"]
    assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 0}


async def test_a_change_of_an_owned_object_reaches_its_owner(cluster: Cluster) -> None:
    await cluster.run(website_operator())
    await cluster.client.create(website())
    await cluster.settle()
    assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 0}
    await cluster.add_nodes(1)
    await cluster.settle()
    assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 1}
    await cluster.client.delete("v1/Service", "blog")
    await cluster.settle()
    assert await cluster.client.get("v1/Service", "blog")


async def test_a_status_that_has_not_changed_is_not_written(cluster: Cluster) -> None:
    manager = await cluster.run(website_operator())
    await cluster.client.create(website())
    await cluster.settle()
    before = await cluster.client.get(WEBSITE, "blog")
    manager.controllers[0].enqueue(Key("default", "blog"), "test")
    await cluster.settle()
    assert (await cluster.client.get(WEBSITE, "blog"))["metadata"]["resourceVersion"] == before["metadata"][
        "resourceVersion"
    ]


async def test_an_exception_is_shown_and_retried_and_delays_no_other_object(cluster: Cluster) -> None:
    operator = Operator("flaky")
    calls: list[str] = []

    @operator.reconcile(Website, workers=1)
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(site.name)
        if site.name == "bad" and calls.count("bad") < 3:
            raise RuntimeError("the moon is full")
        site.status.ready = 7

    manager = await cluster.run(operator)
    await cluster.client.create(website("bad"))
    await cluster.client.create(website("good"))
    await cluster.settle()
    assert (await cluster.client.get(WEBSITE, "good"))["status"]["ready"] == 7
    events = await cluster.client.list("v1/Event", namespace="default")
    assert [(event["involvedObject"]["name"], event["message"]) for event in events] == [
        ("bad", "RuntimeError: the moon is full")
    ]
    assert manager.metrics.value("controller_runtime_reconcile_errors_total", controller="flaky-website") == 1
    await cluster.advance(5)
    assert calls.count("bad") >= 3  # Its own status, once written, is looked at once more.
    assert (await cluster.client.get(WEBSITE, "bad"))["status"]["ready"] == 7


async def test_an_object_waits_for_what_is_cleaned_up_after_it(cluster: Cluster) -> None:
    operator = Operator("cleaner")
    cleaned: list[str] = []
    may_go = asyncio.Event()

    @operator.on_delete(Website)
    async def clean_up(site: Website, ctx: Context) -> None:
        await may_go.wait()
        cleaned.append(site.name)

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    held = await cluster.client.get(WEBSITE, "blog")
    assert held["metadata"]["finalizers"] == ["extensions.example.com/cleaner"]
    await cluster.client.delete(WEBSITE, "blog")
    assert (await cluster.client.get(WEBSITE, "blog"))["metadata"]["deletionTimestamp"]
    may_go.set()
    await cluster.settle()
    assert cleaned == ["blog"]
    assert await cluster.client.get_or_none(WEBSITE, "blog") is None


async def test_a_timer_rings_by_the_clock_for_as_long_as_the_object_is_there(cluster: Cluster) -> None:
    operator = Operator("watchman")
    rings: list[str] = []

    @operator.timer(Website, seconds=60)
    def ring(site: Website) -> None:
        rings.append(site.name)

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert rings == ["blog"]
    await cluster.advance(59)
    assert rings == ["blog"]
    await cluster.advance(1)
    assert rings == ["blog"] * 2
    await cluster.client.delete(WEBSITE, "blog")
    await cluster.advance(600)
    assert rings == ["blog"] * 2


async def test_a_handler_is_called_again_when_it_asks_for_it(cluster: Cluster) -> None:
    operator = Operator("patient")
    calls: list[str] = []

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(site.name)
        ctx.requeue(30)

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    before = len(calls)
    await cluster.advance(30)
    assert len(calls) == before + 1


async def test_a_change_elsewhere_concerns_the_objects_that_the_mapping_names(cluster: Cluster) -> None:
    operator = Operator("mapper")
    seen: list[str | None] = []

    def concerned(config_map: dict[str, Any]) -> list[Key]:
        return [Key(config_map["metadata"]["namespace"], config_map["metadata"]["name"])]

    @operator.reconcile(Website, watches={"v1/ConfigMap": concerned})
    async def reconcile(site: Website, ctx: Context) -> None:
        settings = await ctx.get("v1/ConfigMap", site.name)
        seen.append(settings["data"]["colour"] if settings else None)

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "blog"}, "data": {"colour": "blue"}}
    await cluster.client.create(settings)
    await cluster.settle()
    assert seen[0] is None
    assert seen[-1] == "blue"


async def test_plain_kinds_are_handled_as_dicts_and_found_by_index(cluster: Cluster) -> None:
    operator = Operator("plain")
    results: list[list[str]] = []

    @operator.index("v1/ConfigMap", name="colour")
    def colour(config_map: dict[str, Any]) -> list[str]:
        return [config_map.get("data", {}).get("colour", "")]

    @operator.reconcile("v1/ConfigMap", labels="paint=yes")
    async def reconcile(config_map: dict[str, Any], ctx: Context) -> None:
        same = ctx.indexed("v1/ConfigMap", "colour", config_map["data"]["colour"])
        results.append(sorted(obj["metadata"]["name"] for obj in same))

    await cluster.run(operator)
    for name, labels in (("a", {}), ("b", {"paint": "yes"})):
        metadata = {"name": name, "labels": labels}
        await cluster.client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"colour": "red"}}
        )
    await cluster.settle()
    # The watch of all ConfigMaps, which the index follows, may be behind that of the labelled ones.
    await cluster.client.patch("v1/ConfigMap", "b", {"data": {"size": "1"}}, namespace="default")
    await cluster.settle()
    assert results[-1] == ["a", "b"]


class JobStatus(Model):
    conditions: Conditions = Field(default_factory=list)


class Chore(CustomResource[None, JobStatus], group="example.com", version="v1alpha1", scope="Cluster"):
    """Something to do."""


async def test_conditions_move_only_when_they_change(cluster: Cluster) -> None:
    operator = Operator("chores")
    chores: list[list[Condition]] = []

    @operator.reconcile(Chore)
    async def reconcile(chore: Chore, ctx: Context) -> None:
        ctx.condition("Ready", True, reason="AllDone", message="nothing to do")
        ctx.event("Done", "it is done")
        chores.append(chore.status.conditions)
        if len(chores) < 5:
            ctx.requeue(100)

    await cluster.run(operator)
    await cluster.client.create({"apiVersion": "example.com/v1alpha1", "kind": "Chore", "metadata": {"name": "mow"}})
    await cluster.settle()
    stored = await cluster.client.get("example.com/v1alpha1/Chore", "mow")
    (condition,) = stored["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["observedGeneration"]) == ("Ready", "True", 1)
    await cluster.advance(100)
    again = await cluster.client.get("example.com/v1alpha1/Chore", "mow")
    assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]


RBAC = "rbac.authorization.k8s.io"


async def allow(cluster: Cluster, name: str, rules: list[dict[str, Any]]) -> None:
    """Let robot do what the rules say."""
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
    await cluster.client.create({**head, "kind": "ClusterRole", "rules": rules})
    binding: dict[str, Any] = {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}}
    binding["subjects"] = [{"apiGroup": RBAC, "kind": "User", "name": "robot"}]
    await cluster.client.create({**head, "kind": "ClusterRoleBinding", **binding})


TOO_LITTLE = [
    {"apiGroups": ["*"], "resources": ["websites"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["*"], "resources": ["websites/status"], "verbs": ["patch"]},
    {"apiGroups": ["*"], "resources": ["deployments", "services"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
]


FINALIZERS = {"apiGroups": ["extensions.example.com"], "resources": ["websites/finalizers"], "verbs": ["update"]}


def rules_of(message: str, whose: str) -> list[dict[str, Any]]:
    _, _, rules = message.partition(f" to {whose}: ")
    rules_for: list[dict[str, Any]] = yaml.safe_load(f"[{rules}]")
    return rules_for


async def test_a_missing_permission_is_named_with_the_rule_that_would_allow_it(cluster: Cluster) -> None:
    await allow(cluster, "too-little", TOO_LITTLE)
    await cluster.client.apply(Website.crd())
    await cluster.run(website_operator(), client=cluster.client_as("robot"), install=False)
    await cluster.client.create(website())
    await cluster.settle()
    (event,) = await cluster.client.list("v1/Event", namespace="default")
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]  # It owns them: as its manifests say.
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs}
    assert rules_of(event["message"], "a Role of robot") == [rule, FINALIZERS]


def config_map_operator(*, own: bool = True) -> Operator:
    """Declares nothing of what it does."""
    operator = Operator("website-controller")

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": site.name}}, own=own)

    return operator


@pytest.mark.parametrize("own", [True, False], ids=["its own", "free"])
async def test_the_rules_that_are_reported_for_an_apply_are_enough_for_it(cluster: Cluster, own: bool) -> None:
    await allow(cluster, "too-little", TOO_LITTLE)
    await cluster.client.apply(Website.crd())
    await cluster.run(config_map_operator(own=own), client=cluster.client_as("robot"), install=False)
    await cluster.client.create(website())
    await cluster.settle()
    (event,) = await cluster.client.list("v1/Event", namespace="default")
    message = rules_of(event["message"], "a Role of robot")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]}
    assert message == ([rule, FINALIZERS] if own else [rule])
    await allow(cluster, "enough", message)
    await cluster.advance(600)
    assert await cluster.client.get_or_none("v1/ConfigMap", "blog") is not None


async def test_a_missing_permission_to_set_owners_is_named_in_the_error(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]}
    await allow(cluster, "too-little", [*TOO_LITTLE, rule])
    await cluster.client.apply(Website.crd())
    await cluster.run(config_map_operator(), client=cluster.client_as("robot"), install=False)
    await cluster.client.create(website())
    await cluster.settle()
    (event,) = await cluster.client.list("v1/Event", namespace="default")
    assert rules_of(event["message"], "its role") == [rule, FINALIZERS]


async def test_a_refused_apply_is_a_refusal_like_others(cluster: Cluster) -> None:
    operator, refused = Operator("website-controller"), list[errors.Forbidden]()

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        try:
            await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": site.name}})
        except errors.Forbidden as error:  # A handler may catch it.
            refused.append(error)

    await allow(cluster, "too-little", TOO_LITTLE)
    await cluster.client.apply(Website.crd())
    await cluster.run(operator, client=cluster.client_as("robot"), install=False)
    await cluster.client.create(website())
    await cluster.settle()
    assert [error.status["details"]["kind"] for error in refused] == ["configmaps"]
    assert await cluster.client.list("v1/Event", namespace="default") == []


async def test_the_server_refuses_objects_that_the_schema_forbids(cluster: Cluster) -> None:
    await cluster.run(website_operator())
    with pytest.raises(errors.Invalid, match=r"spec\.gitRepo"):
        await cluster.client.create(website(gitRepo="ftp://example.com"))
    with pytest.raises(errors.Invalid, match=r"spec\.replicas"):
        await cluster.client.create(website(replicas=101))


async def test_the_dependents_of_an_object_go_when_it_goes(cluster: Cluster) -> None:
    await cluster.run(website_operator())
    await cluster.client.create(website())
    await cluster.settle()
    await cluster.client.delete(WEBSITE, "blog")
    await cluster.settle()
    assert await cluster.client.list(DEPLOYMENT) == []
    assert await cluster.client.get_or_none("v1/Service", "blog") is None


async def test_the_status_of_a_plain_kind_is_stored_too(cluster: Cluster) -> None:
    operator = Operator("plain-status")

    @operator.reconcile(DEPLOYMENT)
    async def reconcile(deployment: dict[str, Any], ctx: Context) -> None:
        deployment.setdefault("status", {})["replicas"] = deployment["spec"]["replicas"]

    await cluster.run(website_operator())
    await cluster.run(operator)
    await cluster.client.create(website(replicas=4))
    await cluster.settle()
    assert (await cluster.client.get(DEPLOYMENT, "blog"))["status"]["replicas"] == 4


async def test_the_status_of_a_handler_is_stored_although_it_fails(cluster: Cluster) -> None:
    operator = Operator("half-done")

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        site.status.ready = 5
        raise RuntimeError("and then it broke")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 5}


def test_two_functions_for_the_end_of_one_kind_are_refused() -> None:
    operator = Operator("twice")
    operator.on_delete(Website)(lambda site: None)
    with pytest.raises(ValueError, match="already"):
        operator.on_delete(WEBSITE)


async def test_nothing_is_done_for_an_object_before_it_is_sure_that_it_will_be_cleaned_up_after(
    cluster: Cluster,
) -> None:
    operator, kept = website_operator(), []

    @operator.on_delete(Website)
    async def clean_up(site: Website, ctx: Context) -> None: ...

    @operator.reconcile(Website)
    async def rent(site: Website, ctx: Context) -> None:
        kept.append(list(site.metadata.finalizers))

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert kept
    assert all(kept)
