"""Timelines: writes, Events, reconciles and faults, as text, as a picture, and in the report of a failed test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.testing.perturb.operators import Shop, config_map, shop

from pinnace.sdk import Context, Operator
from pinnace.testing.cluster import Cluster, running_cluster
from pinnace.testing.timeline import TimelineEntry, render_html, render_text

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stocker() -> Operator:
    operator = Operator("stocker")
    operator.needs("v1/ConfigMap", "create")

    @operator.reconcile(Shop)
    async def reconcile(actual: Shop, ctx: Context) -> None:
        ctx.event("Stocking", "the stock is filled")
        await ctx.client.create(config_map(f"{actual.name}-stock"))

    return operator


async def work(cluster: Cluster) -> None:
    await cluster.run(stocker())
    cluster.faults.conflict(resource="configmaps", times=1)
    await cluster.client.create(shop())
    await cluster.settle()
    await cluster.advance(5)


async def test_a_timeline_has_writes_events_reconciles_and_faults_in_their_order() -> None:
    async with running_cluster(controllers=False) as cluster:
        await work(cluster)
        lines = [line for line in cluster.history.timeline().splitlines() if "customresourcedefinitions" not in line]
    text = "\n".join(lines)
    first = (
        "created shops.example.com default/corner by test",
        "reconcile Shop default/corner: Conflict: ",
        "    because Shop default/corner was added",
    )
    second = (
        "reconcile Shop default/corner by stocker",
        "    because retry",
        "created configmaps default/corner-stock by stocker",
    )
    fault = "conflict: create configmaps default/corner-stock by stocker"
    event = "Normal Stocking: Shop default/corner by stocker"
    for between in (fault, event):  # Events are written in the background, so these two are in either order.
        result = [text.index(wanted) for wanted in (*first, between, *second)]
        assert result == sorted(result), text


async def test_an_interrupted_reconcile_is_shown_as_such() -> None:
    async with running_cluster(controllers=False) as cluster:
        manager = await cluster.run(stocker())
        cluster.faults.latency(60, resource="configmaps", verb="create")
        await cluster.client.create(shop())
        while "latency of 60 s" not in cluster.history.timeline():
            await cluster.clock.advance(0)
        await cluster.kill(manager)
        assert "reconcile Shop default/corner: interrupted by stocker" in cluster.history.timeline()


class Cells(HTMLParser):
    """The cells of a picture: class, row and text."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = dict(attrs)
        if tag == "div" and result.get("style"):
            self.cells.append([result["class"] or "", result["style"] or "", ""])

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1][2] += data


def test_a_picture_has_a_lane_for_each_program_and_bars_for_reconciles() -> None:
    entries = [
        TimelineEntry(NOW, "test", "created", "created shops <corner>"),
        TimelineEntry(NOW, "stocker", "reconcile", "reconcile Shop", ["because of it"], length=2),
        TimelineEntry(NOW, "stocker", "created", "created stock"),
    ]
    parser = Cells()
    page = render_html(entries, "a & b")
    parser.feed(page)
    cells = [(style, place, text.strip()) for style, place, text in parser.cells]
    assert [cell for cell in cells if cell[0].partition(" ")[0] in ("entry", "span", "caption")] == [
        ("entry created", "grid-column: 2; grid-row: 2", "created shops <corner>"),
        ("span reconcile", "grid-column: 3; grid-row: 3 / 5", ""),
        ("caption", "grid-column: 3; grid-row: 3", "reconcile Shopbecause of it"),
        ("entry created", "grid-column: 3; grid-row: 4", "created stock"),
    ]
    assert "<title>a &amp; b</title>" in page
    assert "a Kubernetes Event" not in page, "the legend has what the picture has"
    assert render_text(entries).splitlines()[2] == "    because of it"


FAILING = """
from tests.testing.test_timeline import work


async def test_it(cluster):
    await work(cluster)
    assert not "reached"
"""


def test_the_report_of_a_failed_test_has_its_timeline_and_a_picture(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto")
    (tmp_path / "test_it.py").write_text(FAILING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    command = [sys.executable, "-m", "pytest", "-q"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1, ended.stdout
    for wanted in (
        "faults of cluster",
        "conflict: create configmaps default/corner-stock by stocker",
        "timeline of cluster",
        "reconcile Shop default/corner by stocker",
        "Normal Stocking: Shop default/corner by stocker",
    ):
        assert wanted in ended.stdout
    picture = re.search(r"as a picture: (\S+)", ended.stdout)
    assert picture is not None
    assert Path(picture.group(1)).read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("html", [False, True])
async def test_an_empty_timeline_is_no_error(html: bool) -> None:
    async with running_cluster(controllers=False) as cluster:
        page = cluster.history.timeline_html() if html else cluster.history.timeline()
        assert page.startswith("<!doctype html>") if html else page == ""
