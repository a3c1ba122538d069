"""A new cluster has the roles of a new Kubernetes cluster, and gets back what it lost."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from pinnace.cluster.default_roles import completion, default_roles, ensure_default_roles
from pinnace.kinds import catalog
from pinnace.kinds.definitions import Definitions
from pinnace.model.resources import Registry
from pinnace.server.fanout import Fanout
from pinnace.store.memory import MemoryStore

NOW = datetime(2026, 1, 2, tzinfo=UTC)
AUTOMATIC = "rbac.authorization.kubernetes.io/autoupdate"
Object = dict[str, Any]


@pytest.fixture(scope="module")
def roles() -> dict[tuple[str, str], Object]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in default_roles()}


def test_every_object_is_marked_as_kubernetes_marks_them(roles: dict[tuple[str, str], Object]) -> None:
    for obj in roles.values():
        assert obj["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert obj["metadata"]["annotations"] == {AUTOMATIC: "true"}


def test_the_roles_that_people_use_gather_the_others(roles: dict[tuple[str, str], Object]) -> None:
    view, edit, admin = (roles["ClusterRole", name]["rules"] for name in ("view", "edit", "admin"))
    assert all(rule in edit for rule in view)
    assert all(rule in admin for rule in edit)
    reads_secrets = [rule for rule in view if "secrets" in rule["resources"]]
    assert reads_secrets == []
    assert any("rolebindings" in rule["resources"] for rule in admin)


def test_anonymous_users_see_health_and_version_only(roles: dict[tuple[str, str], Object]) -> None:
    open_to_all = [
        obj["roleRef"]["name"]
        for (kind, _), obj in roles.items()
        if kind == "ClusterRoleBinding"
        and any(subject["name"] == "system:unauthenticated" for subject in obj.get("subjects", ()))
    ]
    assert open_to_all == ["system:public-info-viewer"]
    rules = roles["ClusterRole", "system:public-info-viewer"]["rules"]
    assert rules == [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]}]


def test_every_bound_role_exists(roles: dict[tuple[str, str], Object]) -> None:
    for obj in default_roles():
        if "roleRef" in obj:
            assert (obj["roleRef"]["kind"], obj["roleRef"]["name"]) in roles


def test_what_is_missing_is_added_and_what_was_added_stays(roles: dict[tuple[str, str], Object]) -> None:
    wanted = roles["ClusterRole", "system:basic-user"]
    own = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    present = copy.deepcopy(wanted)
    present["rules"] = [own, present["rules"][0]]
    completed = completion(present, wanted)
    assert completed is not None
    assert completed["rules"] == [own, *wanted["rules"]]
    assert completion(completed, wanted) is None


def test_a_lost_subject_comes_back(roles: dict[tuple[str, str], Object]) -> None:
    wanted = roles["ClusterRoleBinding", "system:public-info-viewer"]
    present = {**wanted, "subjects": [{"kind": "User", "name": "bob"}]}
    completed = completion(present, wanted)
    assert completed is not None and completed["subjects"] == [{"kind": "User", "name": "bob"}, *wanted["subjects"]]


def test_who_says_so_is_left_alone(roles: dict[tuple[str, str], Object]) -> None:
    wanted = roles["ClusterRole", "system:basic-user"]
    present = {**wanted, "rules": [], "metadata": {**wanted["metadata"], "annotations": {AUTOMATIC: "false"}}}
    assert completion(present, wanted) is None


async def test_the_second_start_writes_nothing() -> None:
    store = MemoryStore()
    registry = Registry(catalog.resources(Definitions.load("1.36"), old_versions=False))
    fanout = Fanout(store)
    await fanout.load()
    await ensure_default_roles(registry, fanout, store, NOW)
    revision = store.revision
    await ensure_default_roles(registry, fanout, store, NOW)
    assert store.revision == revision
    await store.close()
