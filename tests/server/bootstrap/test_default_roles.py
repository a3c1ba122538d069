"""A new cluster has the roles of a new Kubernetes cluster, and gets back what it lost."""

from __future__ import annotations

import copy
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pinnace.kinds import catalog
from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.resources import Registry
from pinnace.server.bootstrap.default_roles import completion, default_role, default_roles, ensure_default_roles
from pinnace.serving.cache.fanout import Fanout
from pinnace.store.memory import MemoryStore

NOW = datetime(2026, 1, 2, tzinfo=UTC)
AUTOMATIC = "rbac.authorization.kubernetes.io/autoupdate"
Object = dict[str, Any]


@pytest.fixture(scope="module")
def roles() -> dict[tuple[str, str], Object]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in default_roles("1.36")}


KUBERNETES = {
    "1.25": (119, "ff8947d6f4259eeb"),
    "1.26": (119, "5a4ceb803abc2b91"),
    "1.27": (119, "fe20c604af5a7fe7"),
    "1.28": (119, "0093a6f8acd897f4"),
    "1.29": (121, "f3bf95709fc64743"),
    "1.30": (123, "1dec7d0352f97b75"),
    "1.31": (123, "4dbbd8c371fc4afd"),
    "1.32": (123, "a53a8f48cac637aa"),
    "1.33": (127, "73a3a574e26765dc"),
    "1.34": (131, "08338b3a9bb48d05"),
    "1.35": (131, "c45a6b782fb6335d"),
    "1.36": (133, "3eafbf67a56dce5c"),
    "1.37": (141, "f40aefbc70bc96df"),
}
"""How many objects each minor makes with its default feature admission plug-ins, and a digest of all that they say."""


@pytest.mark.parametrize("minor", minors())
def test_each_minor_has_its_own_roles_to_the_rule(minor: str) -> None:
    facts = []
    for obj in default_roles(minor):
        metadata, gathers = obj["metadata"], obj.get("aggregationRule")
        identity = [obj["kind"], metadata.get("namespace", ""), metadata["name"], sorted(metadata["labels"])]
        rules = None if gathers else obj.get("rules") or []
        facts.append([*identity, gathers, rules, obj.get("roleRef"), obj.get("subjects") or []])
    facts.sort(key=lambda fact: fact[:3])
    encoded = json.dumps(facts, sort_keys=True).encode()
    assert (len(facts), hashlib.sha256(encoded).hexdigest()[:16]) == KUBERNETES[minor]


def test_a_role_of_one_minor_is_found_by_its_name() -> None:
    leases = {"verbs": ["get", "list", "watch"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    name = "system:controller:node-controller"
    assert leases in default_role(name, "1.37")["rules"]
    assert leases not in default_role(name, "1.36")["rules"]
    with pytest.raises(StopIteration):
        default_role("system:controller:selinux-warning-controller", "1.32")


def test_the_roles_of_a_feature_need_its_gate() -> None:
    def names(minor: str, gates: str) -> set[str]:
        return {obj["metadata"]["name"] for obj in default_roles(minor, FeatureGates.parse(minor, gates))}

    all_on = "GenericWorkload=true,DRAResourcePoolStatus=true,StorageVersionAPI=true"
    assert {name.rpartition(":")[2] for name in names("1.37", all_on) - names("1.37", "")} == {
        "podgroup-protection-controller",
        "resourcepoolstatusrequest-controller",
        "storage-version-garbage-collector",
    }
    assert "system:controller:podgroup-protection-controller" not in names("1.36", all_on)


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
    for obj in default_roles("1.36"):
        if "roleRef" in obj:
            assert (obj["roleRef"]["kind"], obj["roleRef"]["name"]) in roles


def test_missing_rules_are_added_and_added_ones_stay(roles: dict[tuple[str, str], Object]) -> None:
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


def test_a_role_without_auto_update_is_left_unchanged(roles: dict[tuple[str, str], Object]) -> None:
    wanted = roles["ClusterRole", "system:basic-user"]
    present = {**wanted, "rules": [], "metadata": {**wanted["metadata"], "annotations": {AUTOMATIC: "false"}}}
    assert completion(present, wanted) is None


async def test_the_second_start_writes_nothing() -> None:
    store = MemoryStore()
    registry = Registry(catalog.resources(Definitions.load("1.36"), old_versions=False))
    fanout = Fanout(store)
    await fanout.load()
    await ensure_default_roles(registry, fanout, store, NOW, minor="1.36")
    revision = store.revision
    await ensure_default_roles(registry, fanout, store, NOW, minor="1.36")
    assert store.revision == revision
    await store.close()
