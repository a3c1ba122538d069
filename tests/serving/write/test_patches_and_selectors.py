"""Patches and selectors through the API: examples first, then random small objects against plain models."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.in_process import (
    APPLY,
    CONFIG_MAPS,
    DEPLOYMENTS,
    MERGE,
    OPERATIONS,
    PODS,
    STRATEGIC,
    InProcess,
    Reply,
    config_map,
    control_plane,
    deployment,
    pod,
)

Data = dict[str, str]


async def test_a_merge_patch_sets_and_removes(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map(data={"a": "1", "b": "2"}))
    reply = await api.patch(f"{CONFIG_MAPS}/settings", {"data": {"a": None, "c": "3"}}, MERGE)
    assert (reply.status, reply.json["data"]) == (200, {"b": "2", "c": "3"})


async def test_a_json_patch_is_done_whole_or_not_at_all(api: InProcess) -> None:
    made = await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/b", "value": "2"},
        {"op": "remove", "path": "/data/a"},
    ]
    reply = await api.patch(f"{CONFIG_MAPS}/settings", operations, OPERATIONS)
    assert (reply.status, reply.json["data"]) == (200, {"b": "2"})
    failed = await api.patch(f"{CONFIG_MAPS}/settings", operations, OPERATIONS)
    assert failed.status == 422
    assert (await api.get(f"{CONFIG_MAPS}/settings")).json == reply.json
    assert made["data"] == {"a": "1"}


async def test_a_strategic_patch_merges_lists_by_their_keys(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment())
    more = {"name": "sidecar", "image": "example.com/sidecar:1"}
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.com/web:2"}, more]}}}}
    reply = await api.patch(f"{DEPLOYMENTS}/web", patch, STRATEGIC)
    images = {
        container["name"]: container["image"] for container in reply.json["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"main": "example.com/web:2", "sidecar": "example.com/sidecar:1"}
    gone = {"spec": {"template": {"spec": {"containers": [{"name": "sidecar", "$patch": "delete"}]}}}}
    reply = await api.patch(f"{DEPLOYMENTS}/web", gone, STRATEGIC)
    assert [container["name"] for container in reply.json["spec"]["template"]["spec"]["containers"]] == ["main"]


async def test_an_apply_creates_then_owns_and_lets_go(api: InProcess) -> None:
    target = f"{CONFIG_MAPS}/settings?fieldManager=me"
    assert (await api.patch(target, config_map(data={"a": "1", "b": "2"}), APPLY)).status == 201
    reply = await api.patch(target, config_map(data={"a": "1"}), APPLY)
    assert (reply.status, reply.json["data"]) == (200, {"a": "1"})
    await api.patch(f"{CONFIG_MAPS}/settings?fieldManager=other", {"data": {"a": "9"}})
    conflict = await api.patch(target, config_map(data={"a": "1"}), APPLY)
    assert conflict.status == 409
    assert conflict.message.startswith('Apply failed with 1 conflict: conflict with "other"')
    forced = await api.patch(f"{target}&force=true", config_map(data={"a": "1"}), APPLY)
    assert (forced.status, forced.json["data"]) == (200, {"a": "1"})


async def test_an_apply_may_be_yaml(api: InProcess) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata:\n  a: 'yes'\n"
    reply = await api.patch(f"{CONFIG_MAPS}/settings?fieldManager=me", body, APPLY)
    assert (reply.status, reply.json["data"]) == (201, {"a": "yes"})


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        (MERGE, [], 400),
        (MERGE, {"data": {"a": 5}}, 422),
        (MERGE, {"metadata": {"name": "other"}}, 400),
        (MERGE, {"metadata": {"namespace": "other"}}, 400),
        (MERGE, {"metadata": {"resourceVersion": "1"}}, 409),
        (MERGE, {"metadata": {"uid": "another"}}, 422),
        (MERGE, {"kind": "Pod"}, 422),
        (MERGE, {"metadata": 5}, 422),
        (OPERATIONS, {}, 400),
        (OPERATIONS, [{"op": "boo", "path": "/a"}], 422),
        (OPERATIONS, [{"op": "remove", "path": "/nothing"}], 422),
        (OPERATIONS, [{"op": "replace", "path": "", "value": 5}], 422),
        (STRATEGIC, {"data": [1]}, 422),
        (STRATEGIC, "text", 400),
        (APPLY, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "settings"}}, 400),
        (APPLY, "text", 400),
        (APPLY, b"a: [", 400),
        (APPLY, config_map("other"), 400),
        (APPLY, config_map(managedFields=[{"manager": "me"}]), 400),
        (APPLY, {**config_map(), "bogus": 1}, 500),  # Kubernetes says so, too.
        ("application/json", {}, 415),
        ("text/plain", {}, 415),
    ],
)
async def test_a_patch_that_cannot_be_is_refused_and_changes_nothing(
    api: InProcess, content_type: str, body: Any, code: int
) -> None:
    made = await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    reply = await api.patch(f"{CONFIG_MAPS}/settings?fieldManager=me", body, content_type)
    assert reply.status == code, reply.body
    assert reply.json["kind"] == "Status"
    assert (await api.get(f"{CONFIG_MAPS}/settings")).json == made


async def test_a_patch_of_nothing_is_refused(api: InProcess) -> None:
    assert (await api.patch(f"{CONFIG_MAPS}/settings", {})).status == 404


async def test_an_apply_needs_to_know_whose_it_is(api: InProcess) -> None:
    reply = await api.patch(f"{CONFIG_MAPS}/settings", config_map(), APPLY)
    assert (reply.status, "fieldManager: Required value" in reply.message) == (422, True)


async def test_force_is_for_applies_alone(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    reply = await api.patch(f"{CONFIG_MAPS}/settings?force=true", {})
    assert (reply.status, "may not be specified for non-apply patch" in reply.message) == (422, True)


async def test_all_wrong_options_of_a_write_are_reported_at_once(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    wrong = f"force=&fieldManager={'x' * 129}&dryRun=all&dryRun=All&fieldValidation=strict"
    reply = await api.patch(f"{CONFIG_MAPS}/settings?{wrong}", b"{")
    assert reply.message == (
        'PatchOptions.meta.k8s.io "" is invalid: [force: Forbidden: may not be specified for non-apply patch, '
        "fieldManager: Too long: may not be more than 128 bytes, "
        'dryRun: Unsupported value: ["all","All"]: supported values: "All", '
        'fieldValidation: Unsupported value: "strict": supported values: "", "Ignore", "Strict", "Warn"]'
    )


# Models.


@asynccontextmanager
async def only_default() -> AsyncIterator[InProcess]:
    """A control plane that has one namespace and nothing else: quicker than a new cluster."""
    async with control_plane(born=False) as api:
        await api.made("/api/v1/namespaces", {"metadata": {"name": "default"}})
        yield api


KEYS = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.sampled_from(["1", "2", "3", "", "ü"])
DATA = st.dictionaries(KEYS, VALUES)
CHANGE = st.dictionaries(KEYS, st.none() | VALUES)


def merged(data: Data, change: dict[str, str | None]) -> Data:
    return {key: value for key, value in {**data, **change}.items() if value is not None}


def operations(data: Data, change: dict[str, str | None]) -> list[dict[str, Any]]:
    """The same change, said step by step."""
    steps: list[dict[str, Any]] = [] if data else [{"op": "add", "path": "/data", "value": {}}]
    for key, value in change.items():
        if value is not None:
            steps.append({"op": "add", "path": f"/data/{key}", "value": value})
        elif key in data:
            steps.append({"op": "remove", "path": f"/data/{key}"})
    return steps


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=DATA, changes=st.lists(st.tuples(st.sampled_from([MERGE, STRATEGIC, OPERATIONS]), CHANGE), max_size=4))
def test_patches_of_every_form_do_what_the_model_does(
    data: Data, changes: list[tuple[str, dict[str, str | None]]]
) -> None:
    async def play() -> None:
        async with only_default() as api:
            await api.made(CONFIG_MAPS, config_map(data=data))
            model = copy.copy(data)
            for content_type, change in changes:
                body: Any = operations(model, change) if content_type == OPERATIONS else {"data": change}
                reply = await api.patch(f"{CONFIG_MAPS}/settings", body, content_type)
                model = merged(model, change)
                assert reply.status == 200, reply.body
                assert reply.json.get("data", {}) == model

    asyncio.run(play())


class Appliers:
    """The model of server-side apply over a flat map: each manager's last opinion, and who owns what."""

    def __init__(self) -> None:
        self.data: Data = {}
        self.owners: dict[str, set[str]] = {}

    def conflicts(self, manager: str, wanted: Data) -> bool:
        return any(
            key in self.data and self.data[key] != value and self.owners.get(key, set()) - {manager}
            for key, value in wanted.items()
        )

    def apply(self, manager: str, wanted: Data) -> None:
        for key, value in wanted.items():
            if self.data.get(key) != value:
                self.owners[key] = set()
            self.data[key] = value
            self.owners.setdefault(key, set()).add(manager)
        for key in [key for key, owners in self.owners.items() if manager in owners and key not in wanted]:
            self.owners[key].discard(manager)
            if not self.owners[key]:
                del self.owners[key], self.data[key]


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.tuples(st.sampled_from(["me", "you", "they"]), DATA, st.booleans()), max_size=5))
def test_applies_of_several_managers_do_what_the_model_does(steps: list[tuple[str, Data, bool]]) -> None:
    async def play() -> None:
        async with only_default() as api:
            model = Appliers()
            for manager, wanted, is_forced in steps:
                force = "&force=true" if is_forced else ""
                target = f"{CONFIG_MAPS}/settings?fieldManager={manager}{force}"
                reply = await api.patch(target, config_map(data=wanted), APPLY)
                if not is_forced and model.conflicts(manager, wanted):
                    assert reply.status == 409, reply.body
                    continue
                model.apply(manager, wanted)
                assert reply.status in (200, 201), reply.body
                assert reply.json.get("data", {}) == model.data

    asyncio.run(play())


LABELS = st.dictionaries(st.sampled_from(["app", "tier", "x/y"]), st.sampled_from(["a", "b", "", "c-1"]))
PHASES = st.sampled_from(["Pending", "Running"])


@st.composite
def label_requirements(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    key = draw(st.sampled_from(["app", "tier", "x/y", "none"]))
    operator = draw(st.sampled_from(["=", "==", "!=", "in", "notin", "exists", "missing"]))
    values = draw(st.lists(st.sampled_from(["a", "b", "", "c-1", "zz"]), min_size=1, max_size=2))
    return key, operator, values


def written(requirement: tuple[str, str, list[str]]) -> str:
    key, operator, values = requirement
    match operator:
        case "exists":
            return key
        case "missing":
            return f"!{key}"
        case "in" | "notin":
            return f"{key} {operator} ({','.join(values)})"
        case _:
            return f"{key}{operator}{values[0]}"


def holds(requirement: tuple[str, str, list[str]], labels: Data) -> bool:
    key, operator, values = requirement
    match operator:
        case "exists":
            return key in labels
        case "missing":
            return key not in labels
        case "=" | "==":
            return labels.get(key) == values[0]
        case "!=":
            return labels.get(key) != values[0]
        case "in":
            return labels.get(key) in values
        case _:
            return labels.get(key) not in values


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    pods=st.lists(st.tuples(LABELS, PHASES, st.sampled_from(["", "n1"])), max_size=6),
    requirements=st.lists(label_requirements(), max_size=3),
    fields=st.dictionaries(
        st.sampled_from(["status.phase", "spec.nodeName", "metadata.name"]),
        st.tuples(st.booleans(), st.sampled_from(["Running", "n1", "", "p1"])),
        max_size=2,
    ),
)
def test_selectors_choose_what_the_model_chooses(
    pods: list[tuple[Data, str, str]],
    requirements: list[tuple[str, str, list[str]]],
    fields: dict[str, tuple[bool, str]],
) -> None:
    def is_chosen(name: str, labels: Data, phase: str, node: str) -> bool:
        values = {"status.phase": phase, "spec.nodeName": node, "metadata.name": name}
        return all(holds(requirement, labels) for requirement in requirements) and all(
            (values[field] == value) == is_equal for field, (is_equal, value) in fields.items()
        )

    label_selector = quote(",".join(map(written, requirements)))
    field_selector = quote(
        ",".join(f"{field}{'=' if same else '!='}{value}" for field, (same, value) in fields.items())
    )
    target = f"{PODS}?labelSelector={label_selector}&fieldSelector={field_selector}"

    async def listed(api: InProcess) -> Reply:
        return await api.get(target)

    async def play() -> None:
        async with only_default() as api:
            wanted = []
            for number, (labels, phase, node) in enumerate(pods):
                name = f"p{number}"
                spec = {"nodeName": node} if node else {}
                await api.made(PODS, pod(name, labels=labels, **spec))
                await api.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})
                if is_chosen(name, labels, phase, node):
                    wanted.append(name)
            reply = await listed(api)
            assert reply.status == 200, reply.body
            assert reply.names == wanted
            watch = await api.watch(f"{target}&watch=1")
            try:
                events = await watch.take(len(wanted))
                assert [event["object"]["metadata"]["name"] for event in events] == wanted
            finally:
                watch.close()

    asyncio.run(play())
