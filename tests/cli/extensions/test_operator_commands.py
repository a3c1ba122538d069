"""init, run and manifests: from nothing to an operator in a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml
from tests.sdk.websites import website, website_operator
from typer.testing import CliRunner

from pinnace.cli.command_table import app
from pinnace.model import errors
from pinnace.sdk.command.operator_files import NoOperator, operator_in
from pinnace.sdk.installation.manifests import DeploymentOptions, definitions, roles, workload
from pinnace.testing.cluster import Cluster
from pinnace.testing.plugin import cluster

__all__ = ["cluster"]

SOURCES = Path(__file__).parents[3] / "src"
PLACE = DeploymentOptions(namespace="default", image="example.com/website:1", file="website.py")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCES)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    target = tmp_path / "greeter-controller"
    result = CliRunner().invoke(app, ["init", "greeter-controller", "--directory", str(target)])
    assert result.exit_code == 0, result.output
    return target


def test_a_new_project_passes_its_own_tests(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if not any(point.value == "pinnace.testing.plugin" for point in entry_points(group="pytest11")):
        command += [
            "-p",
            "pinnace.testing.plugin",
        ]  # Not installed, so not found by itself.
    ran = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, timeout=60)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_a_project_is_never_written_over_another(project: Path) -> None:
    result = CliRunner().invoke(app, ["init", "greeter-controller", "--directory", str(project)])
    assert result.exit_code == 1


def test_an_operator_runs_in_a_cluster_of_its_own_and_stops_on_a_signal(project: Path, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "pinnace.cli.main", "run", "greeter_controller.py", "--dev"]
    command += ["--kubeconfig", str(kubeconfig)]
    process = subprocess.Popen(
        command, cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        message = ""
        deadline = time.monotonic() + 30
        while "is running" not in message and time.monotonic() < deadline:
            line = process.stdout.readline()
            assert line, message
            message += line
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, message + process.stdout.read()
    finally:
        process.kill()


def test_manifests_are_what_kubectl_takes(project: Path) -> None:
    result = CliRunner().invoke(app, ["manifests", str(project / "greeter_controller.py")])
    assert result.exit_code == 0, result.output
    kinds = [obj["kind"] for obj in yaml.safe_load_all(result.stdout)]
    assert kinds == [
        *("CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
        "Deployment",
    ]


def test_manifests_can_be_written_with_a_dockerfile(project: Path, tmp_path: Path) -> None:
    out = tmp_path / "deploy"
    result = CliRunner().invoke(app, ["manifests", str(project / "greeter_controller.py"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == ["Dockerfile", "crds.yaml", "deployment.yaml", "rbac.yaml"]
    assert "COPY greeter_controller.py" in (out / "Dockerfile").read_text()


async def test_the_permissions_are_enough_for_the_operator_and_for_nothing_else(cluster: Cluster) -> None:
    operator = website_operator()
    declared = operator.declarations
    for obj in [*definitions(declared, PLACE), *roles(declared, PLACE), *workload(declared, PLACE)]:
        await cluster.client.create(obj)
    account = cluster.client_as("system:serviceaccount:default:website-controller", "system:serviceaccounts")
    await cluster.run(operator, client=account, install=False, leader_election=True)
    await cluster.client.create(website())
    await cluster.settle()
    assert (await cluster.client.get("extensions.example.com/v1/Website", "blog"))["status"] == {"ready": 0}
    events = await cluster.client.list("v1/Event", namespace="default")
    assert [event for event in events if event["type"] == "Warning"] == []
    with pytest.raises(errors.Forbidden):
        await account.list("v1/Secret")
    with pytest.raises(errors.Forbidden):
        await account.delete("extensions.example.com/v1/Website", "blog")


def test_a_file_without_an_operator_says_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("")
    with pytest.raises(NoOperator, match=r'operator = Operator\("empty"\)'):
        operator_in(str(path))


def test_one_of_several_operators_is_named_after_a_colon(tmp_path: Path) -> None:
    path = tmp_path / "both.py"
    path.write_text('from pinnace.sdk import Operator\na = Operator("a")\nb = Operator("b")\n')
    with pytest.raises(NoOperator, match="several"):
        operator_in(str(path))
    assert operator_in(f"{path}:b").name == "b"


@pytest.mark.parametrize(
    "command", [["run", "--dev"], ["manifests"], ["plugin", "install"]], ids=lambda words: words[0]
)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\nundefined_name\n", "broken.py:2: NameError: name 'undefined_name' is not defined"),
        ("x = 1\ndef broken(:\n", "broken.py:2: invalid syntax"),
        ("import no_such_module\n", "broken.py:1: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
    ids=["name", "syntax", "import"],
)
def test_a_file_that_cannot_be_loaded_says_where_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], text: str, says: str
) -> None:
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = CliRunner().invoke(app, [*command, "broken.py"])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, f"pinnace: {says}")
