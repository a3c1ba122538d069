"""The pytest plug-in: the fixture `cluster`, a Kubernetes API inside the test, and `kubeconfig` for other programs.

pytest loads it in every environment with pinnace, so it imports nothing before a test uses a fixture.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:
    # pytest reports then, to a test that uses the fixtures, that no plug-in runs `async def`.
    async_fixture = pytest.fixture  # type: ignore[assignment]

if TYPE_CHECKING:
    from pinnace.testing.cluster import Cluster

_SETTINGS = {"version": "kubernetes_version", "feature_gates": "feature_gates", "runtime_config": "runtime_config"}
"""The setting of each argument of the marker `kubernetes`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for a real server."""
    parser.getgroup("pinnace").addoption(
        "--pinnace-server",
        default="",
        metavar="SERVER",
        help="run the fixture `cluster` against a real server: the path of a kubeconfig, or a URL for the current "
        "credentials. Each test has a fresh namespace; what needs the test's clock, faults or forks is skipped",
    )


@async_fixture
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Yield a real server in this process, new for each test; `cluster.client` is its administrator.

    The marker `kubernetes` chooses its version, feature gates and APIs.
    """
    from pinnace.cluster.settings import Settings  # noqa: PLC0415 - only for tests that ask for it
    from pinnace.testing.cluster import running_cluster  # noqa: PLC0415 - as above

    marker = request.node.get_closest_marker("kubernetes")
    if server := request.config.getoption("--pinnace-server"):
        from pinnace.testing.real_server import real_cluster  # noqa: PLC0415 - as above

        if marker is not None:
            pytest.skip("the marker kubernetes chooses a version and settings, and a real server has its own")
        async with real_cluster(server) as real:
            yield real  # type: ignore[misc]  # A test that uses what only a Cluster has is skipped.
        return
    settings = None
    if marker is not None:
        if unknown := sorted(marker.kwargs.keys() - _SETTINGS.keys()):
            pytest.fail(f"the marker kubernetes takes {', '.join(_SETTINGS)}, not {unknown[0]}", pytrace=False)
        settings = Settings(**{_SETTINGS[name]: value for name, value in marker.kwargs.items()})
    async with running_cluster(settings=settings) as fresh:
        yield fresh


@async_fixture
async def kubeconfig(cluster: Cluster, tmp_path: Path) -> Path:
    """Return the path of a kubeconfig for `cluster` over a socket, for kubectl and operators in any language."""
    return await cluster.listen(tmp_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the faults and the timeline of the test's clusters to the report of a failed test."""
    report = yield
    module = sys.modules.get("pinnace.testing.cluster")
    if report.failed and module is not None:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, module.Cluster):
                texts = (("faults", value.faults.report()), ("timeline", _timeline_of(value, item)))
                report.sections += [(f"{title} of {name}", text) for title, text in texts if text]
    return report


def _timeline_of(cluster: Cluster, item: pytest.Item) -> str:
    """Return the last lines of the timeline, and the path of its picture, which is written to pytest's cache."""
    text = cluster.history.recent()
    cache: pytest.Cache | None = getattr(item.config, "cache", None)
    if not text or cache is None:
        return text
    path = cache.mkdir("pinnace-timelines") / f"{re.sub(r'[^A-Za-z0-9]+', '-', item.nodeid).strip('-')[-120:]}.html"
    path.write_text(cluster.history.timeline_html(item.name))
    return f"{text}\nall of it as a picture: {path}"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Keep pytest from rewriting the modules of pinnace for its assertions, as it does with those of each plug-in.

    That takes seconds where the result cannot be cached, and in Python 3.11 it may fail while two threads import.
    """
    getattr(early_config.pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("pinnace")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for about in (
        "perturb(operator, ignore=(), kinds=..., limit=...): run the test again with each disturbance of the operator",
        "kubernetes(version='1.36', feature_gates='A=true', runtime_config='api/alpha=true'): set up `cluster` so",
    ):
        config.addinivalue_line("markers", about)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turn tests with the marker `perturb` into searches: the test is what users do."""
    for item in items:
        marker = item.get_closest_marker("perturb")
        if marker is not None and item.config.getoption("--pinnace-server"):
            item.add_marker(pytest.mark.skip(reason="perturb forks a cluster of this process"))
            continue
        if marker is not None and isinstance(item, pytest.Function):
            item.obj = _perturbed(item.obj, item.name, marker)


def _perturbed(test: Callable[..., Awaitable[None]], name: str, marker: pytest.Mark) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def run(**arguments: Any) -> None:
        from pinnace.testing.perturb.scenario import Scenario  # noqa: PLC0415 - only for tests that ask for it
        from pinnace.testing.perturb.search import search  # noqa: PLC0415 - as above

        cluster = arguments.pop("cluster", None)
        if cluster is None:
            pytest.fail("a test with the marker perturb takes the fixture `cluster`")
        options = dict(marker.kwargs)
        operator = options.pop("operator", None) or marker.args[0]
        scenario = Scenario(
            operator=operator,
            act=lambda copy: test(cluster=copy, **arguments),
            name=name,
            ignore=tuple(options.pop("ignore", ())),
        )
        result = await search(scenario, base=cluster, **options)
        if result.findings or result.unstable:
            pytest.fail(str(result), pytrace=False)

    return run
