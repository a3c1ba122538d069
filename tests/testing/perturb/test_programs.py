"""The search over the wire: operators that are programs of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.machine import need

from pinnace.cli.extensions.perturb import scenario_of
from pinnace.cli.session import CommandError
from pinnace.testing.cluster import Cluster
from pinnace.testing.perturb.scenario import Scenario, ScenarioFailed, SearchResult
from pinnace.testing.perturb.schedule import KINDS, DisturbanceKind
from pinnace.testing.perturb.search import replay, search

SCRIPT = Path(__file__).with_name("shell_operator.sh")


async def open_shop(cluster: Cluster) -> None:
    metadata = {"name": "corner", "labels": {"app": "shop"}}
    await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await cluster.settle()


def scenario(way: str, *, deadline: float = 2.0) -> Scenario:
    return Scenario(command=("sh", str(SCRIPT), way), act=open_shop, name=way, quiet=0.6, deadline=deadline)


async def searched(way: str, *kinds: DisturbanceKind, deadline: float = 2.0) -> SearchResult:
    return await search(scenario(way, deadline=deadline), kinds=kinds)


async def test_a_crash_shows_the_bug_of_a_shell_script() -> None:
    need("curl")
    result = await searched("buggy", "crash")
    assert not result.unstable
    assert result.smallest is not None, str(result)
    assert str(result.smallest.disturbance) == "crash:1"
    assert "configmaps default/corner-stock: none instead of 1 object" in str(result)
    assert "updated configmaps default/corner by sh/replica-1" in str(result)


async def test_the_correct_script_gives_no_report() -> None:
    need("curl")
    result = await searched("correct", "crash", "overlap", deadline=30.0)
    assert result.findings == [], str(result)
    assert not result.unstable
    assert len(result.tried) == 4


@pytest.mark.soak
async def test_the_correct_script_stands_every_disturbance() -> None:
    result = await search(scenario("correct", deadline=30.0))
    assert result.findings == [], str(result)
    assert {scenario.kind for scenario in result.tried} == set(KINDS) - {"missed-state"}, "it does not watch"


async def test_a_finding_can_be_shown_again() -> None:
    assert await replay(scenario("buggy"), "failed-write:2")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("/no/such/program",), "cannot be started: .*No such file"),
        (
            ("sh", "-c", "echo no settings; exit 3"),
            "has ended 51 times, the last time with 3. Its output: .*no settings",
        ),
    ],
    ids=["missing", "ends"],
)
async def test_a_program_that_does_not_run_is_an_error(
    command: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.testing.perturb.programs._RESTART_SECONDS", 0.0)
    with pytest.raises(ScenarioFailed, match=f"(?s){message}"):
        await search(Scenario(command=command, act=open_shop, name="program"))


async def test_a_program_that_sends_no_request_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.testing.perturb.programs.START_SECONDS", 0.3)
    with pytest.raises(ScenarioFailed, match=r"has sent no request to the cluster of its KUBECONFIG in 0\.3 s"):
        await search(Scenario(command=("sleep", "60"), act=open_shop, name="sleeper"))


def test_a_scenario_has_an_operator_or_a_command() -> None:
    with pytest.raises(ValueError, match="needs an operator or a command, and not both"):
        Scenario(act=open_shop)


SHOP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: corner, labels: {app: shop}}
"""


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pinnace.cli.main", "perturb", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_the_command_takes_manifests_and_executables_as_steps(tmp_path: Path) -> None:
    need("curl")
    (tmp_path / "shop.yaml").write_text(SHOP)
    step = tmp_path / "check.sh"
    step.write_text('#!/bin/sh\ngrep -q server "$KUBECONFIG" && touch "$0.seen"\n')
    step.chmod(0o755)
    ended = run(
        "--command", f"sh {SCRIPT} buggy", "--kinds", "crash", "--limit", "1", "--quiet", "0.6", "--deadline", "1",
        "shop.yaml", "./check.sh", "delete:shop.yaml",
        folder=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 disturbances, 1 findings" in ended.stdout
    assert (tmp_path / "check.sh.seen").exists()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("missing.yaml", 'the path "missing.yaml" does not exist'),
        ("delete:missing.yaml", 'the path "missing.yaml" does not exist'),
        ("missing", "the step missing does not exist; expected a manifest"),
        ("plain.txt", "the step plain.txt is not executable; make it so with chmod"),
    ],
)
def test_bad_steps_are_refused(step: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.txt").write_text("nothing")
    with pytest.raises(CommandError, match=message):
        scenario_of(["sh"], [step], setup=(), ignore=(), quiet=1, deadline=1)


def test_steps_without_a_command_are_refused(tmp_path: Path) -> None:
    ended = run("one.py", "two.py", folder=tmp_path)
    message = "expected one Python file with Scenarios, found 2; steps need --command"
    assert (ended.returncode, message in ended.stderr) == (2, True), ended.stderr
