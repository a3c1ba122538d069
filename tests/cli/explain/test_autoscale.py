"""pinnace autoscale backtest: a load goes up and down, and the replicas follow as the controller would set them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner

from pinnace.cli.command_table import app
from pinnace.controllers.autoscaling.backtest import Backtest, LoadPoint, PodShape

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
LOAD = "time,cores\n0,500m\n600,4\n1800,500m\n3600,500m\n"


def hpa(name: str, **spec: Any) -> dict[str, Any]:
    wanted = {"maxReplicas": 10, "metrics": [CPU], **spec}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": wanted,
    }


def backtest(tmp_path: Path, *objects: dict[str, Any], load: str = LOAD, flags: tuple[str, ...] = ()) -> Any:
    files = []
    for number, obj in enumerate(objects):
        files.append(str(tmp_path / f"{number}.yaml"))
        Path(files[-1]).write_text(yaml.safe_dump(obj))
    metrics = tmp_path / "load.csv"
    metrics.write_text(load)
    return CliRunner().invoke(app, ["autoscale", "backtest", *files, "--metrics", str(metrics), *flags])


def test_the_replicas_follow_the_load_and_wait_before_they_fall(tmp_path: Path) -> None:
    result = backtest(tmp_path, hpa("web"))
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()[2:-2]]
    assert [(row[0], row[3]) for row in rows] == [
        ("0:00:00", "1"),
        ("0:10:00", "4"),
        ("0:10:15", "8"),
        ("0:35:00", "1"),
    ]
    assert "3 changes, at most 8 replicas" in result.stdout


def test_several_autoscalers_are_compared_in_one_picture(tmp_path: Path) -> None:
    fast = hpa("fast <1>", behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    picture = tmp_path / "load.svg"
    result = backtest(tmp_path, hpa("slow"), fast, flags=("--plot", str(picture)))
    assert result.exit_code == 0, result.output
    root = ElementTree.fromstring(picture.read_text())
    texts = {element.text for element in root.iter() if element.text}
    assert {"load", "capacity, slow", "capacity, fast <1>", "replicas", "utilization (%)", "unmet load"} <= texts
    assert any(text.startswith("fast <1>: at most 8, ") for text in texts)


def test_a_picture_is_a_png_by_its_name_and_other_names_are_refused(tmp_path: Path) -> None:
    picture = tmp_path / "load.png"
    assert backtest(tmp_path, hpa("slow"), flags=("--plot", str(picture))).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    refused = backtest(tmp_path, hpa("slow"), flags=("--plot", str(tmp_path / "load.gif")))
    assert (refused.exit_code, "cannot draw a .gif: write .png, .svg, .pdf" in refused.output) == (1, True)


def test_a_total_is_shared_at_once() -> None:
    spec: Any = {"maxReplicas": 20, "metrics": [QUEUE]}
    steps = Backtest(spec, PodShape(startup=0)).run([LoadPoint(0, 10_000), LoadPoint(60, 40_000), LoadPoint(90, 0)])
    assert [step.replicas for step in steps] == [1, 1, 1, 1, 4, 4, 4]
    assert [step.unmet for step in steps] == [0, 0, 0, 0, 30_000, 0, 0]


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ("", "has no rows"),
        ("0,1\n15,much\n", "load.csv:2: expected a time and a load such as 2500m, found '15,much'"),
        ("15,1\n0,1\n", "the times must increase from row to row"),
        ("time\n0\n", "load.csv:2: expected a time and a load such as 2500m, found '0'"),
        ("0,NaN\n15,1\n", "load.csv:1: expected a time and a load such as 2500m, found '0,NaN'"),
        ("0,1\n15,-4\n", "load.csv:2: expected a time and a load of zero or more, found '15,-4'"),
        ("0,1\ninf,4\n", "load.csv:2: expected a time and a load of zero or more, found 'inf,4'"),
        ("0,1\n1e30,4\n", "the times span 1.16e+25 days, and at most 366 can be replayed; cut the file"),
    ],
    ids=["empty", "no number", "out of order", "one column", "NaN first", "negative", "infinite", "too long"],
)
def test_a_load_that_cannot_be_read_is_named(tmp_path: Path, load: str, expected: str) -> None:
    result = backtest(tmp_path, hpa("web"), load=load)
    assert result.exit_code == 1
    assert expected in result.stderr


def test_another_kind_is_refused(tmp_path: Path) -> None:
    result = backtest(tmp_path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}})
    assert result.exit_code == 1
    assert "expected HorizontalPodAutoscaler of autoscaling/v2, found Pod of v1" in result.stderr


@pytest.mark.parametrize(
    ("spec", "flags", "expected"),
    [
        ({"maxReplicas": "many"}, (), "spec.maxReplicas: expected a number, found 'many'"),
        ({"metrics": ["cpu"]}, (), "web: spec cannot be evaluated (TypeError: "),
        ({"metrics": [{"type": "Resource"}]}, (), "check it with kubectl apply --dry-run=server"),
        ({}, ("--request", "0"), "--request 0: expected an amount above zero, such as 500m"),
        ({}, ("--request", "much"), "--request much: quantities must match the regular expression"),
    ],
    ids=["maximum", "text as a metric", "no source", "no request", "no quantity"],
)
def test_settings_that_cannot_be_replayed_are_named(
    tmp_path: Path, spec: dict[str, Any], flags: tuple[str, ...], expected: str
) -> None:
    result = backtest(tmp_path, hpa("web", **spec), flags=flags)
    assert result.exit_code == 1
    assert expected in result.stderr


def test_a_file_without_an_autoscaler_or_without_text_is_named(tmp_path: Path) -> None:
    empty, load = tmp_path / "empty.yaml", tmp_path / "load.csv"
    empty.write_text("")
    load.write_text(LOAD)
    command = ["autoscale", "backtest", str(empty), "--metrics", str(load)]
    assert f"in {empty}, found no object" in CliRunner().invoke(app, command).stderr
    load.write_bytes(b"\xff\xfe0,1\n")
    assert f"{load}: expected a CSV file in UTF-8" in CliRunner().invoke(app, command).stderr


@pytest.mark.parametrize("field", ["minReplicas", "maxReplicas"])
def test_more_pods_than_can_be_replayed_are_refused(tmp_path: Path, field: str) -> None:
    at_once = {"scaleUp": {"policies": [{"type": "Pods", "value": 2**31 - 1, "periodSeconds": 15}]}}
    spec: Any = {"maxReplicas": 2**31 - 1, "metrics": [QUEUE], "behavior": at_once, field: 2**31 - 1}
    result = backtest(tmp_path, hpa("vast", **spec), load="time,load\n0,1E\n600,1E\n")
    assert result.exit_code == 1
    assert "at most 20000 can be replayed" in result.output
