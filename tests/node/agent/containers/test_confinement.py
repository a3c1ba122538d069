"""Seccomp and AppArmor profiles of pods: none that a pod states is ignored."""

from __future__ import annotations

import json
from typing import cast

import pytest
from tests.node.agent.conftest import RealNode

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod
from pinnace.node.resources.admission import check_apparmor, check_selinux, loaded_apparmor_profiles

_COMMAND = "grep Seccomp: /proc/self/status"


def _waiting(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    waiting: Object = (statuses[0].get("state") or {}).get("waiting") or {}
    return waiting


async def test_the_default_profile_applies_unless_a_pod_states_another(node: RealNode) -> None:
    (node.directory / "seccomp" / "deep").mkdir(parents=True)
    profile = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"}]}
    (node.directory / "seccomp" / "deep" / "own.json").write_text(json.dumps(profile))
    stated: dict[str, Object | None] = {
        "nothing": None,
        "default": {"type": "RuntimeDefault"},
        "unconfined": {"type": "Unconfined"},
        "localhost": {"type": "Localhost", "localhostProfile": "deep/own.json"},
    }
    for name, seccomp in stated.items():
        context = {} if seccomp is None else {"securityContext": {"seccompProfile": seccomp}}
        await node.create(name, f"{_COMMAND}; mkdir /tmp/x && echo made", restartPolicy="Never", **context)
    logs = {}
    for name in stated:
        await node.until_pod(name, lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"))
        logs[name] = (await node.logs(name)).split()[1:]
    assert logs["nothing"] == logs["default"] == ["2", "made"]
    assert logs["unconfined"] == ["0", "made"]
    assert logs["localhost"][0] == "2"
    assert "made" not in logs["localhost"]


async def test_a_missing_profile_keeps_the_container_from_starting(node: RealNode) -> None:
    profile = {"type": "Localhost", "localhostProfile": "none.json"}
    await node.create("missing", ["true"], securityContext={"seccompProfile": profile})
    pod = await node.until_pod("missing", lambda pod: _waiting(pod).get("reason") == "CreateContainerError")
    path = node.directory / "seccomp" / "none.json"
    text = f'failed to generate spec: cannot load seccomp profile "{path}": open {path}: no such file or directory'
    assert _waiting(pod)["message"] == text


@pytest.mark.skipif(loaded_apparmor_profiles() is not None, reason="this machine has AppArmor")
async def test_a_pod_with_an_apparmor_profile_is_rejected_without_apparmor(node: RealNode) -> None:
    profile = {"type": "Localhost", "localhostProfile": "own"}
    await node.create("confined", ["true"], container={"securityContext": {"appArmorProfile": profile}})
    pod = await node.until_phase("confined", "Failed")
    assert pod["status"]["reason"] == "AppArmor"
    message = "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host"
    assert pod["status"]["message"] == message


@pytest.mark.parametrize(
    ("profile", "loaded", "message"),
    [
        ({"type": "Unconfined"}, None, ""),
        ({"type": "Localhost", "localhostProfile": "own"}, {"own"}, ""),
        (
            {"type": "Localhost", "localhostProfile": "own"},
            {"other"},
            'Cannot enforce AppArmor: profile "own" is not loaded',
        ),
        ({"type": "RuntimeDefault"}, {"own"}, "Cannot enforce AppArmor: this node has no default profile"),
    ],
    ids=["unconfined", "loaded", "not loaded", "default"],
)
def test_apparmor_profiles_are_checked_at_admission(profile: Object, loaded: set[str] | None, message: str) -> None:
    pod = {"spec": {"containers": [{"name": "main", "securityContext": {"appArmorProfile": profile}}]}}
    result = check_apparmor(cast(Pod, pod), loaded)
    assert (result.message if result is not None else "") == message


@pytest.mark.parametrize("place", ["pod", "container", "init container"])
def test_selinux_options_are_refused_where_they_would_count(place: str) -> None:
    context = {"securityContext": {"seLinuxOptions": {"level": "s0:c1"}}}
    plain = {"name": "main"}
    spec: Object = {"containers": [plain | (context if place == "container" else {})]}
    spec |= context if place == "pod" else {}
    spec["initContainers"] = [plain | (context if place == "init container" else {})]
    pod = cast(Pod, {"spec": spec})
    assert check_selinux(pod, is_enabled=False) is None
    result = check_selinux(pod, is_enabled=True)
    assert result is not None
    assert result.message == "Cannot enforce SELinux: this node sets no SELinux labels"
    assert check_selinux(cast(Pod, {"spec": {"containers": [plain]}}), is_enabled=True) is None
