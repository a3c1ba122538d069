"""Webhooks change and refuse objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.admission.webhook_server import allowed, denied, patched, webhook
from tests.admission.webhooks.configurations import CONFIG_MAPS_ONLY, MUTATING, NAME, VALIDATING, configure, hook, label
from tests.server.in_process import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    InProcess,
    Object,
    config_map,
    pod,
)
from tests.server.in_process import deployment as deployed


async def test_a_webhook_is_shown_the_whole_request(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        await api.made(CONFIG_MAPS, config_map("a", {"x": "1"}))
        await api.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "2"}})
        await api.delete(f"{CONFIG_MAPS}/a")
    created, updated, deleted = server.requests
    kind, resource = {"group": "", "version": "v1", "kind": "ConfigMap"}, {"group": "", "version": "v1"}
    assert created["kind"] == created["requestKind"] == kind
    assert created["resource"] == {**resource, "resource": "configmaps"}
    assert (created["name"], created["namespace"], created["operation"]) == ("a", "default", "CREATE")
    assert created["userInfo"] == {"username": "system:apiserver", "groups": ["system:masters", "system:authenticated"]}
    assert created["object"]["data"] == {"x": "1"}
    assert (created["object"]["kind"], created["object"]["apiVersion"]) == ("ConfigMap", "v1")
    assert created["oldObject"] is None
    assert created["dryRun"] is False
    assert (updated["object"]["data"], updated["oldObject"]["data"]) == ({"x": "2"}, {"x": "1"})
    assert (deleted["operation"], deleted["object"], deleted["oldObject"]["data"]) == ("DELETE", None, {"x": "2"})


async def test_a_webhook_changes_what_is_stored(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, label) as server:
        await configure(api, MUTATING, hook(server.client_config))
        made = await api.made(CONFIG_MAPS, config_map("a"))
    assert made["metadata"]["labels"] == {"seen": "yes"}
    assert (await api.get(f"{CONFIG_MAPS}/a")).json["metadata"]["labels"] == {"seen": "yes"}


async def test_an_object_is_defaulted_and_validated_after_a_webhook(api: InProcess, tmp_path: Path) -> None:
    sidecar = {"name": "sidecar", "image": "example.com/side:latest"}
    pods = {**CONFIG_MAPS_ONLY, "resources": ["pods"], "operations": ["CREATE"]}

    def inject(request: Object) -> Object:
        return patched(request, {"op": "add", "path": "/spec/containers/-", "value": {**sidecar, "colour": "red"}})

    async with webhook(tmp_path, inject) as server:
        await configure(api, MUTATING, hook(server.client_config, rules=[pods]))
        container = (await api.made(PODS, pod()))["spec"]["containers"][1]
        assert (container["imagePullPolicy"], container["terminationMessagePath"]) == ("Always", "/dev/termination-log")
        assert "colour" not in container
        sidecar["name"] = "Not A Name"
        refused = await api.post(PODS, pod("two"))
    assert refused.status == 422
    assert "spec.containers[1].name" in refused.message


async def test_selectors_rules_and_conditions_say_who_is_meant(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, lambda request: denied(request)) as server:
        await configure(
            api,
            VALIDATING,
            hook(
                server.client_config,
                objectSelector={"matchLabels": {"check": "yes"}},
                namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                matchConditions=[{"name": "named", "expression": "object.metadata.name.startsWith('a')"}],
            ),
        )
        labels = {"check": "yes"}
        assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
        assert (await api.post(CONFIG_MAPS, config_map("b", labels=labels))).status == 201
        other = "/api/v1/namespaces/kube-public/configmaps"
        assert (await api.post(other, config_map("ab", labels=labels))).status == 201
        assert server.requests == []
        assert (await api.post(CONFIG_MAPS, config_map("ab", labels=labels))).status == 400


async def test_a_condition_without_a_value_fails_closed(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        conditions = [{"name": "broken", "expression": "object.data.missing == 'x'"}]
        await configure(api, VALIDATING, hook(server.client_config, matchConditions=conditions))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.status == 403
    assert "resulted in error: no such key: data" in reply.message


async def test_another_version_of_a_kind_is_the_same_kind(api: InProcess, tmp_path: Path) -> None:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook(server.client_config, rules=[rule]))
        old = "/apis/extensions/v1beta1/namespaces/default/deployments"
        assert (await api.post(old, {**deployed(), "apiVersion": "extensions/v1beta1"})).status == 201
        (request,) = server.requests
        assert request["requestKind"]["group"] == "extensions"
        assert (request["kind"]["group"], request["object"]["apiVersion"]) == ("apps", "apps/v1")
        await api.delete(f"{VALIDATING}/one")
        await configure(api, VALIDATING, hook(server.client_config, rules=[rule], matchPolicy="Exact"))
        body = {**deployed("two"), "apiVersion": "extensions/v1beta1"}
        assert (await api.post(old, body)).status == 201
    assert len(server.requests) == 1


async def test_an_old_version_can_be_changed_in_the_new_one(api: InProcess, tmp_path: Path) -> None:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
    more = {"op": "replace", "path": "/spec/replicas", "value": 9}
    async with webhook(tmp_path, lambda request: patched(request, more)) as server:
        await configure(api, MUTATING, hook(server.client_config, rules=[rule]))
        old = "/apis/extensions/v1beta1/namespaces/default/deployments"
        made = await api.made(old, {**deployed(), "apiVersion": "extensions/v1beta1"})
        assert (made["apiVersion"], made["spec"]["replicas"]) == ("extensions/v1beta1", 9)
        assert (await api.get(f"{DEPLOYMENTS}/web")).json["spec"]["replicas"] == 9


async def test_warnings_of_a_webhook_reach_the_client(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, lambda request: allowed(request, warnings=["mind the gap"])) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.header("warning") == ['299 - "mind the gap"']


async def test_a_webhook_without_side_effects_is_asked_in_a_dry_run_too(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook(server.client_config, sideEffects="NoneOnDryRun"))
        assert (await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map())).status == 201
    assert server.requests[0]["dryRun"] is True


@pytest.mark.parametrize("message", [{}, {"sideEffects": "Unknown"}, {"sideEffects": "Some"}], ids=str)
async def test_a_webhook_of_old_that_may_have_side_effects_stops_a_dry_run(
    api: InProcess, tmp_path: Path, message: Object
) -> None:
    async with webhook(tmp_path, allowed) as server:
        written = hook(server.client_config)
        del written["sideEffects"]
        body: Object = {"metadata": {"name": "one"}, "webhooks": [{**written, **message}]}
        await api.made(VALIDATING.replace("/v1/", "/v1beta1/"), body)
        today = (await api.get(f"{VALIDATING}/one")).json
        assert today["webhooks"][0]["sideEffects"] == (message or {"sideEffects": "Unknown"})["sideEffects"]
        reply = await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map())
        assert (reply.status, reply.message) == (400, f'admission webhook "{NAME}" does not support dry run')
        assert server.requests == []
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201
        assert len(server.requests) == 1
        assert (await api.put(f"{VALIDATING}/one", today)).status == 200  # It may keep what it was allowed to have.
        new = await api.post(VALIDATING, {**today, "metadata": {"name": "two"}})
        assert new.status == 422


async def test_webhooks_of_old_may_share_a_name(api: InProcess) -> None:
    twice = [hook({"url": "https://127.0.0.1:1/"})] * 2
    body: Object = {"metadata": {"name": "one"}, "webhooks": twice}
    assert (await api.post(VALIDATING, body)).status == 422
    assert (await api.post(VALIDATING.replace("/v1/", "/v1beta1/"), body)).status == 201


async def test_a_webhook_is_asked_again_after_a_later_one_has_changed_something(api: InProcess, tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []

    def answer(request: Object) -> Object:
        labels = request["object"]["metadata"].get("labels") or {}
        seen.append(("first" if request["name"] else "", dict(labels)))
        return label(request) if not labels else allowed(request)

    async with webhook(tmp_path, answer) as first, _second(tmp_path) as second:
        await configure(
            api,
            MUTATING,
            hook(first.client_config, reinvocationPolicy="IfNeeded"),
            hook(second.client_config, name="second.example.com"),
        )
        made = await api.made(CONFIG_MAPS, config_map())
    assert made["metadata"]["labels"] == {"seen": "yes", "second": "yes"}
    assert [labels for _, labels in seen] == [{}, {"seen": "yes", "second": "yes"}]
    assert len(second.requests) == 1


def _second(tmp_path: Path) -> Any:
    (tmp_path / "second").mkdir()
    add = {"op": "add", "path": "/metadata/labels/second", "value": "yes"}
    return webhook(tmp_path / "second", lambda request: patched(request, add))


async def test_connections_to_a_webhook_are_kept(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        for index in range(5):
            await api.made(CONFIG_MAPS, config_map(f"c{index}"))
        session = api.plane.webhooks._session
        assert session is not None and session.connector is not None
        assert sum(len(kept) for kept in session.connector._conns.values()) == 1
