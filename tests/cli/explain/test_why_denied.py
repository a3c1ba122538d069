"""`pinnace why-denied` as its users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.server_process import ServerProcess

import pinnace


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    server = ServerProcess.start(tmp_path_factory.mktemp("server"), "--ephemeral")
    try:
        yield server.await_kubeconfig()
    finally:
        server.stop()


def why_denied(kubeconfig: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pinnace.cli.main", "why-denied", "--kubeconfig", str(kubeconfig), *words],
        text=True,
        capture_output=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])},
    )
    return done.returncode, done.stdout, done.stderr


def test_a_denial_comes_with_the_command_that_ends_it(kubeconfig: Path) -> None:
    code, message, _ = why_denied(kubeconfig, "bob", "list", "deploy", "-n", "shop")
    assert code == 1
    lines = message.splitlines()
    assert lines[0] == 'bob may not list deployments.apps in namespace "shop".'
    assert "  kubectl create rolebinding bob-view -n shop --clusterrole=view --user=bob" in lines
    assert lines[-3:] == ['  verbs: ["list"]', '  apiGroups: ["apps"]', '  resources: ["deployments"]']


def test_roles_of_parts_of_the_system_are_no_suggestion(kubeconfig: Path) -> None:
    _, message, _ = why_denied(kubeconfig, "bob", "get", "pods", "-n", "shop")
    assert "--clusterrole=view" in message and "pinnace:" not in message


def test_a_service_account_is_bound_as_one(kubeconfig: Path) -> None:
    _, message, _ = why_denied(kubeconfig, "system:serviceaccount:shop:robot", "create", "pods/exec", "-n", "shop")
    assert "--clusterrole=edit --serviceaccount=shop:robot" in message


def test_an_allowed_action_is_reported_with_its_rule(kubeconfig: Path) -> None:
    code, message, _ = why_denied(kubeconfig, "bob", "get", "/api")
    binding = 'ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated"'
    assert (code, message.strip()) == (0, f"bob may get /api: {binding}.")


def test_a_group_makes_the_difference(kubeconfig: Path) -> None:
    code, message, _ = why_denied(kubeconfig, "bob", "get", "secrets", "--group", "system:masters")
    assert (code, "system:masters" in message) == (0, True)


def test_a_resource_that_is_not_served_is_named(kubeconfig: Path) -> None:
    code, _, message = why_denied(kubeconfig, "bob", "get", "podz")
    assert (code, 'no resource "podz"' in message) == (2, True)


def test_a_verb_that_is_nearly_one_of_kubernetes_is_suggested(kubeconfig: Path) -> None:
    code, _, message = why_denied(kubeconfig, "bob", "delte", "pods")
    assert (code, message) == (1, 'pinnace: "delte" is no verb of Kubernetes; did you mean delete?\n')
    assert why_denied(kubeconfig, "bob", "anchor", "pods")[2] == "", "any word may be a verb of some API server"


def test_a_user_without_a_name_is_no_user(kubeconfig: Path) -> None:
    code, report, message = why_denied(kubeconfig, "", "get", "pods")
    assert (code, report, "name is empty" in message) == (2, "", True)


def test_no_cluster_is_reported(tmp_path: Path) -> None:
    code, _, message = why_denied(tmp_path / "missing", "bob", "get", "pods")
    assert (code, message.startswith("pinnace: ")) == (2, True)
