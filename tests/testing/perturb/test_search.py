"""The search finds each kind of bug, and reports nothing for the correct twins."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sdk.websites import website, website_operator
from tests.testing.perturb.operators import BUGS, KIND, Shop, open_shop, scenario

from pinnace.cli.extensions.perturb_jobs import ProgressLine
from pinnace.model import errors
from pinnace.sdk import Context, Operator
from pinnace.testing.cluster import Cluster, running_cluster
from pinnace.testing.perturb.scenario import Scenario, ScenarioFailed
from pinnace.testing.perturb.schedule import Disturbance
from pinnace.testing.perturb.search import SearchProgress, replay, search

ROOT = Path(__file__).parents[3]


@pytest.fixture
async def bare() -> AsyncIterator[Cluster]:
    async with running_cluster(controllers=False) as cluster:
        yield cluster


@pytest.mark.parametrize("name", BUGS)
async def test_a_bug_is_found_and_can_be_shown_again(name: str, bare: Cluster) -> None:
    kind = BUGS[name][2]
    result = await search(scenario(name, correct=False), base=bare, kinds=[kind])
    assert not result.unstable
    assert result.smallest is not None, str(result)
    assert await replay(scenario(name, correct=False), str(result.smallest.disturbance), base=bare)


@pytest.mark.parametrize("name", BUGS)
async def test_the_correct_twin_gives_no_report(name: str, bare: Cluster) -> None:
    result = await search(scenario(name, correct=True), base=bare, kinds=[BUGS[name][2]])
    assert result.tried
    assert result.findings == [], str(result)
    assert not result.unstable


@pytest.mark.parametrize("name", ["old number of shards", "closed in the past"])
async def test_users_who_have_to_wait_for_the_operator_do_not_make_a_missed_state_a_bug(
    name: str, bare: Cluster
) -> None:
    result = await search(scenario(name, correct=True), base=bare, kinds=["missed-state"])
    assert result.findings == [], str(result)
    assert all(str(scenario) in str(result) for scenario in result.without_verdict)
    assert bool(result.without_verdict) == ("without a verdict" in str(result))


@pytest.mark.soak
@pytest.mark.parametrize("name", BUGS)
async def test_the_correct_twin_stands_every_disturbance(name: str, bare: Cluster) -> None:
    result = await search(scenario(name, correct=True), base=bare)
    assert result.findings == [], str(result)


async def test_a_report_has_the_schedule_the_timeline_and_a_test(bare: Cluster) -> None:
    result = await search(scenario("mark before the work", correct=False), base=bare, kinds=["crash"])
    page = str(result)
    for line in (
        "the end state differs if the operator crashes right after its write 1 and is started again (crash:1)",
        "configmaps default/corner-stock: none instead of 1 object",
        "updated shops.example.com default/corner by marker/replica-1",
        'assert await replay(SCENARIO, "crash:1", base=cluster) == []',
    ):
        assert line in page


def unsteady() -> Operator:
    operator = Operator("unsteady")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        if not actual.status.port:
            patch = {"status": {"port": secrets.randbelow(60000) + 1}}
            await ctx.client.patch(KIND, actual.name, patch, subresource="status")

    return operator


async def test_an_operator_that_is_not_deterministic_is_reported_as_such(bare: Cluster) -> None:
    result = await search(Scenario(operator=unsteady, act=open_shop, name="unsteady"), base=bare)
    assert result.findings == []
    assert "unsteady is not deterministic by itself" in str(result)
    assert "status.port" in str(result)
    message = Scenario(operator=unsteady, act=open_shop, name="unsteady", ignore=("shops.example.com *: status.port",))
    assert not (await search(message, base=bare, kinds=["crash"])).unstable


async def test_a_scenario_that_fails_by_itself_is_an_error(bare: Cluster) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.client.get("v1/ConfigMap", "missing")

    with pytest.raises(ScenarioFailed, match="fails without a disturbance: NotFound"):
        await search(Scenario(operator=unsteady, act=act), base=bare)


def restless() -> Operator:
    operator = Operator("restless")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        await ctx.client.patch(KIND, actual.name, {"status": {"seen": actual.status.seen + 1}}, subresource="status")

    return operator


async def test_a_scenario_that_does_not_settle_is_an_error_that_names_the_controller(
    bare: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.testing.cluster.PATIENCE", 0.5)
    with pytest.raises(ScenarioFailed, match=r"the cluster has not settled after 0\.5 s"):
        await search(Scenario(operator=restless, act=open_shop, name="restless"), base=bare)
    await bare.settle()  # Nothing of it goes on.


def hasty(*, correct: bool) -> Operator:
    """Do not come to rest after a failed write, unless `correct`."""
    operator = Operator("hasty")
    state = {"failed": False}

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        if state["failed"] and not correct:
            await ctx.client.patch(
                KIND, actual.name, {"status": {"seen": actual.status.seen + 1}}, subresource="status"
            )
        elif actual.status.phase != "Open":
            try:
                await ctx.client.patch(KIND, actual.name, {"status": {"phase": "Open"}}, subresource="status")
            except errors.InternalError:
                state["failed"] = True
                raise

    return operator


@pytest.mark.parametrize("correct", [True, False])
async def test_a_disturbed_run_that_does_not_settle_is_a_finding(
    correct: bool, bare: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.testing.cluster.PATIENCE", 2.0)
    shaky = Scenario(operator=lambda: hasty(correct=correct), act=open_shop, name="hasty")
    result = await replay(shaky, "failed-write:1", base=bare)
    assert any("has not settled after" in line for line in result) is not correct


@pytest.mark.parametrize("text", ["crash", "crash:0", "explode:1", "crash:x"])
def test_a_bad_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no disturbance; expected one of crash"):
        Disturbance.parse(text)


async def test_the_website_operator_stands_every_disturbance() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.client.create(website(replicas=2))
        await cluster.settle()
        await cluster.client.patch("extensions.example.com/v1/Website", "blog", {"spec": {"replicas": 3}})
        await cluster.settle()

    result = await search(Scenario(operator=website_operator, act=act, name="website"), limit=8)
    assert result.findings == [], str(result)
    assert len(result.tried) == 8


SCENARIOS = """
from tests.testing.perturb.operators import scenario

GOOD = scenario("mark before the work", correct=True)
BAD = scenario("swallowed error", correct=False)
"""


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--only", "mark before the work", "--kinds", "crash"], 0, "2 disturbances, 0 findings"),
        (["--only", "swallowed error", "--replay", "failed-write:1"], 1, "corner-stock: none instead of 1 object"),
        (["--only", "nonsense"], 2, "no scenario named nonsense; it has mark before the work, swallowed error"),
        (["--kinds", "earthquake"], 2, "'earthquake' is no disturbance"),
        ([":BAD", "--kinds", "failed-write,crash", "--jobs", "2"], 1, "4 disturbances, 1 findings"),
        ([":WORST"], 2, "has no scenario WORST; it has GOOD, BAD"),
        ([":BAD", "--replay", "crash"], 2, "'crash' is no disturbance"),
    ],
    ids=["good", "bad", "no such scenario", "no such kind", "two processes", "no such name", "no such disturbance"],
)
def test_the_command_reports_and_exits(args: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "scenarios.py").write_text(SCENARIOS)
    named = f"{tmp_path / 'scenarios.py'}{args.pop(0) if args[0].startswith(':') else ''}"
    command = [sys.executable, "-m", "pinnace.cli.main", "perturb", named, *args]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, message in ended.stdout + ended.stderr) == (code, True), ended.stdout + ended.stderr


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "file"])
def test_the_progress_has_the_disturbances_that_are_done_and_the_time_left(is_terminal: bool) -> None:
    written: list[str] = []
    seconds = 0.0
    line = ProgressLine("shops", 2, written.append, is_terminal, lambda: seconds)
    line.show(0, SearchProgress(1, 10, 0, 2.0))
    assert written == []  # The other process has not begun.
    for done in (1, 2):
        line.show(1, SearchProgress(done, 9, 1, 3.0))
        seconds += 10.0
    line.clear()
    texts = [f"shops: {done} of 19 disturbances, 1 findings, {left} s left" for done, left in ((2, 24), (3, 18))]
    end = "\r\x1b[K"
    assert written == ([*(f"\r{text}\x1b[K" for text in texts), end] if is_terminal else [f"{texts[1]}\n"])


MARKED = """
import pytest
from tests.testing.perturb.operators import marker, shop


@pytest.mark.perturb(lambda: marker(correct={correct}), kinds=["crash"])
async def test_a_shop_opens(cluster):
    await cluster.client.create(shop())
    await cluster.settle()
"""


@pytest.mark.parametrize("correct", [True, False])
def test_the_marker_turns_a_test_into_a_search(correct: bool, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto")
    (tmp_path / "test_it.py").write_text(MARKED.format(correct=correct))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    command = [sys.executable, "-m", "pytest", "-q"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == (0 if correct else 1), ended.stdout
    assert ("(crash:1)" in ended.stdout) is not correct
