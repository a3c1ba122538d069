"""`pinnace autoscale backtest`: how an autoscaler would have followed a load."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.load_picture import NoPlotLibrary, draw
from pinnace.cli.session import CommandError, failing_with
from pinnace.controllers.autoscaling.backtest import PERIOD, Backtest, BacktestStep, LoadPoint, PodShape
from pinnace.model import quantity
from pinnace.model.objects import Object

_KIND = ("autoscaling/v2", "HorizontalPodAutoscaler")


class AutoscaleAction(StrEnum):
    backtest = "backtest"


def autoscale(
    action: Annotated[AutoscaleAction, typer.Argument(help="The action.", metavar="backtest")],
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files with HorizontalPodAutoscalers.")],
    metrics: Annotated[Path, typer.Option(help="The load as CSV: rows of a time and the load of all pods together.")],
    request: Annotated[str, typer.Option(help="The request of each pod for the measured resource.")] = "1",
    startup: Annotated[float, typer.Option(help="Seconds until a new pod is ready.")] = 30.0,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw the load, replicas and unmet load to this file: .png, .svg or .pdf.", show_default=False
        ),
    ] = None,
) -> None:
    """Replay a load through the arithmetic of the autoscaler, without a cluster.

    The first column of the CSV is a time, in seconds or as 2026-01-31T12:00:00Z, the second the load from then on, such
    as 2500m cores in use. Several autoscalers are compared.

    \b
    Examples:
      pinnace autoscale backtest hpa.yaml --metrics load.csv
      pinnace autoscale backtest hpa.yaml --metrics load.csv --request 500m --startup 90
      pinnace autoscale backtest slow.yaml fast.yaml --metrics load.csv --plot load.png
    """
    try:
        load = read_load(metrics)
        shape = PodShape(startup=startup, request=quantity.parse(request).milli_value)
        runs = {name: Backtest(spec, shape).run(load) for name, spec in _autoscalers(files).items()}
        if plot is not None:
            draw(runs, plot)
    except (CommandError, OSError, ValueError, NoPlotLibrary) as error:
        failing_with(1, f"error: {error}")
    for name, steps in runs.items():
        _print(name, steps)


def read_load(path: Path) -> list[LoadPoint]:
    """Return the rows of a CSV file; a first row without numbers is a heading. Raise ValueError."""
    points: list[LoadPoint] = []
    with path.open(newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            try:
                points.append(LoadPoint(_seconds(row[0]), quantity.parse(row[1].strip()).milli_value))
            except (ValueError, IndexError):
                if number > 1:
                    raise ValueError(
                        f"{path}:{number}: expected a time and a load such as 2500m, found {','.join(row)!r}"
                    ) from None
    if not points:
        raise ValueError(f"{path} has no rows; write a time and a load in each")
    if any(later.at <= earlier.at for earlier, later in pairwise(points)):
        raise ValueError(f"{path}: the times must increase from row to row; sort the rows by the first column")
    return points


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _autoscalers(files: Sequence[str]) -> dict[str, Object]:
    found: dict[str, Object] = {}
    for document in read_documents(files):
        kind = document.object.get("apiVersion"), document.object.get("kind")
        if kind != _KIND:
            raise CommandError(f"{document.source}: expected {_KIND[1]} of {_KIND[0]}, found {kind[1]} of {kind[0]}")
        spec = document.object.get("spec") or {}
        if not spec.get("metrics") or not spec.get("maxReplicas"):
            raise CommandError(f"{document.source}: spec.metrics and spec.maxReplicas are required")
        name = document.object["metadata"]["name"]
        found[name if name not in found else f"{name} ({document.source})"] = spec
    return found


def _print(name: str, steps: Sequence[BacktestStep]) -> None:
    print(f"{name}\n{'TIME':>10}{'LOAD':>12}{'READY':>8}{'REPLICAS':>10}{'UNMET':>12}")
    before = -1
    for step in steps:
        if step.replicas != before:
            at = step.at - steps[0].at
            clock = f"{int(at // 3600)}:{int(at // 60 % 60):02}:{int(at % 60):02}"
            print(f"{clock:>10}{step.load / 1000:>12g}{step.ready:>8}{step.replicas:>10}{step.unmet / 1000:>12g}")
            before = step.replicas
    changes = sum(1 for one, two in pairwise(steps) if one.replicas != two.replicas)
    hours = sum(step.replicas for step in steps) * PERIOD / 3600
    total = sum(step.load for step in steps)
    unmet = 100 * sum(step.unmet for step in steps) / total if total else 0.0
    most = max(step.replicas for step in steps)
    print(f"{changes} changes, at most {most} replicas, {hours:.1f} pod hours, {unmet:.2f} % of the load unmet\n")
