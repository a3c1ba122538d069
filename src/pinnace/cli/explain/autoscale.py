"""`pinnace autoscale backtest`: how an autoscaler would have followed a load."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.session import CommandError, failing_with, format_error
from pinnace.controllers.autoscaling.backtest import PERIOD, Backtest, BacktestStep, LoadPoint, PodShape
from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.model.typed_objects import HorizontalPodAutoscalerSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_DAYS = 366
_KIND = ("autoscaling/v2", "HorizontalPodAutoscaler")


class AutoscaleAction(StrEnum):
    backtest = "backtest"


def autoscale(
    action: Annotated[AutoscaleAction, typer.Argument(help="The action.", metavar="backtest")],
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files with HorizontalPodAutoscalers.")],
    metrics: Annotated[Path, typer.Option(help="The load as CSV: rows of a time and the load of all pods together.")],
    request: Annotated[str, typer.Option(help="The request of each pod for the measured resource.")] = "1",
    startup: Annotated[float, typer.Option(min=0, help="Seconds until a new pod is ready.")] = 30.0,
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
        shape = PodShape(startup=startup, request=_request(request))
        runs = {name: _run(name, spec, shape, load) for name, spec in _autoscalers(files).items()}
        if plot is not None:
            draw(runs, plot)
    except (CommandError, OSError, ValueError, NoPlotLibrary) as error:
        failing_with(1, format_error(error))
    for name, steps in runs.items():
        _print(name, steps)


def read_load(path: Path) -> list[LoadPoint]:
    """Return the rows of a CSV file; a first row without a time is a heading. Raise ValueError."""
    points: list[LoadPoint] = []
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: expected a CSV file in UTF-8: {error}") from None
    for number, row in enumerate(rows, 1):
        if row and not (number == 1 and _is_heading(row)):
            points.append(_point(row, f"{path}:{number}"))
    if not points:
        raise ValueError(f"{path} has no rows; write a time and a load in each")
    if any(later.at <= earlier.at for earlier, later in pairwise(points)):
        raise ValueError(f"{path}: the times must increase from row to row; sort the rows by the first column")
    days = (points[-1].at - points[0].at) / 86_400
    if days > _MOST_DAYS:
        raise ValueError(
            f"{path}: the times span {days:.3g} days, and at most {_MOST_DAYS} can be replayed; cut the file"
        )
    return points


def _is_heading(row: Sequence[str]) -> bool:
    try:
        _seconds(row[0])
    except ValueError:
        return True
    return False


def _point(row: Sequence[str], where: str) -> LoadPoint:
    actual = f"found {','.join(row)!r}"
    try:
        point = LoadPoint(_seconds(row[0]), quantity.parse(row[1].strip()).milli_value)
    except (ValueError, IndexError):
        raise ValueError(f"{where}: expected a time and a load such as 2500m, {actual}") from None
    if not math.isfinite(point.at) or point.value < 0:
        raise ValueError(f"{where}: expected a time and a load of zero or more, {actual}")
    return point


def _request(text: str) -> int:
    try:
        amount = quantity.parse(text).milli_value
    except quantity.InvalidQuantity as error:
        raise ValueError(f"--request {text}: {error}") from None
    if amount <= 0:
        raise ValueError(f"--request {text}: expected an amount above zero, such as 500m")
    return amount


def _run(name: str, spec: Object, shape: PodShape, load: Sequence[LoadPoint]) -> list[BacktestStep]:
    try:
        return Backtest(cast("HorizontalPodAutoscalerSpec", spec), shape).run(load)
    except (LookupError, TypeError, AttributeError, ZeroDivisionError) as error:
        # The server validates autoscalers; a file has not been there.
        message = f"{name}: spec cannot be evaluated ({type(error).__name__}: {error})"
        raise ValueError(f"{message}; check it with kubectl apply --dry-run=server") from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _autoscalers(files: Sequence[str]) -> dict[str, Object]:
    specs: dict[str, Object] = {}
    for document in read_documents(files):
        kind = document.object.get("apiVersion"), document.object.get("kind")
        if kind != _KIND:
            raise CommandError(f"{document.source}: expected {_KIND[1]} of {_KIND[0]}, found {kind[1]} of {kind[0]}")
        spec = document.object.get("spec") or {}
        if not spec.get("metrics") or not spec.get("maxReplicas"):
            raise CommandError(f"{document.source}: spec.metrics and spec.maxReplicas are required")
        for field in ("minReplicas", "maxReplicas"):
            if not isinstance(spec.get(field, 1), int):
                raise CommandError(f"{document.source}: spec.{field}: expected a number, found {spec[field]!r}")
        name = (document.object.get("metadata") or {}).get("name") or document.source
        specs[name if name not in specs else f"{name} ({document.source})"] = spec
    if not specs:
        raise CommandError(f"expected a {_KIND[1]} of {_KIND[0]} in {', '.join(files)}, found no object")
    return specs


def _print(name: str, steps: Sequence[BacktestStep]) -> None:
    print(f"{name}\n{'TIME':>10}{'LOAD':>12}{'READY':>8}{'REPLICAS':>10}{'UNMET':>12}")
    before = -1
    for step in steps:
        if step.replicas != before:
            at = step.at - steps[0].at
            clock = f"{int(at // 3600)}:{int(at // 60 % 60):02}:{int(at % 60):02}"
            print(f"{clock:>10}{step.load / 1000:>12g}{step.ready:>8}{step.replicas:>10}{step.unmet / 1000:>12g}")
            before = step.replicas
    changes = sum(1 for earlier, later in pairwise(steps) if earlier.replicas != later.replicas)
    hours = sum(step.replicas for step in steps) * PERIOD / 3600
    total = sum(step.load for step in steps)
    unmet = 100 * sum(step.unmet for step in steps) / total if total else 0.0
    most = max(step.replicas for step in steps)
    print(f"{changes} changes, at most {most} replicas, {hours:.1f} pod hours, {unmet:.2f} % of the load unmet\n")


FORMATS = (".png", ".svg", ".pdf")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Distinguishable with every kind of colour vision."""
_LOAD = "#9a9a9a"
_UNITS = ((2 * 86400, 86400, "days"), (2 * 3600, 3600, "hours"), (2 * 60, 60, "minutes"), (0, 1, "seconds"))


class NoPlotLibrary(Exception):
    """matplotlib is not installed."""


def draw(runs: Mapping[str, Sequence[BacktestStep]], path: Path) -> None:
    """Write the picture of one or more backtests of the same load: a PNG, an SVG or a PDF, by the suffix of the path.

    Raise NoPlotLibrary, or ValueError for another suffix.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: cannot draw a {path.suffix or 'file without a suffix'}: write {', '.join(FORMATS)}")
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError:
        raise NoPlotLibrary("a picture needs matplotlib: pip install 'pinnace[plot]'") from None
    with rc_context({"svg.fonttype": "none", "path.simplify": True}):  # Text stays text.
        figure = Figure(figsize=(11, 8), layout="constrained")
        _fill(figure, runs)
        figure.savefig(path, dpi=110)


def _fill(figure: Figure, runs: Mapping[str, Sequence[BacktestStep]]) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - an extra

    first = next(iter(runs.values()))
    span = first[-1].at - first[0].at
    seconds, unit = next((seconds, unit) for least, seconds, unit in _UNITS if span >= least)

    def times(steps: Sequence[BacktestStep]) -> list[float]:
        return [(step.at - first[0].at) / seconds for step in steps]

    figures: Any = figure.subplots(4, 1, sharex=True, gridspec_kw={"height_ratios": (3, 3, 2, 1.3)})
    load, replicas, utilization, unmet = figures
    load.fill_between(times(first), [step.load / 1000 for step in first], color=_LOAD, alpha=0.35, linewidth=0)
    load.plot(times(first), [step.load / 1000 for step in first], color=_LOAD, linewidth=1, label="load")
    for (name, steps), colour in zip(runs.items(), _colours(len(runs)), strict=True):
        at = times(steps)
        _steps(load, at, [step.capacity / 1000 for step in steps], colour, f"capacity, {name}")
        _steps(replicas, at, [step.replicas for step in steps], colour, f"{name}: {summary(steps)}")
        used = [100 * step.load / step.capacity if step.capacity else 0 for step in steps]
        utilization.plot(at, used, color=colour, linewidth=0.9, alpha=0.85)
        lacking = [(when, step.unmet / 1000) for when, step in zip(at, steps, strict=True) if step.unmet]
        unmet.vlines([when for when, _ in lacking], 0, [value for _, value in lacking], color=colour, linewidth=2)
    utilization.axhline(100, color="black", linewidth=0.8, linestyle=":")
    for axes, title in zip(figures, ("load and capacity", "replicas", "utilization (%)", "unmet load"), strict=True):
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
        axes.margins(x=0)
        axes.grid(color="#e4e4e4", linewidth=0.7)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    utilization.set_ylim(0, 200)
    for axes in (load, replicas):
        # Above the curves: a legend among them hides some.
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=9, borderaxespad=0.2)
    unmet.set_xlabel(unit)
    unmet.xaxis.set_major_locator(MaxNLocator(nbins=12, steps=[1, 2, 3, 6, 10]))


def summary(steps: Sequence[BacktestStep]) -> str:
    """Return the sum of a backtest: the replicas at most, and the share of the load that was not met."""
    total = sum(step.load for step in steps)
    share = 100 * sum(step.unmet for step in steps) / total if total else 0.0
    return f"at most {max(step.replicas for step in steps)}, {share:.2g} % unmet"


def _steps(axes: Axes, at: Sequence[float], values: Sequence[float], colour: str, label: str) -> None:
    last = len(at) - 1
    kept = [number for number in range(len(at)) if number in (0, last) or values[number] != values[number - 1]]
    x, y = [at[number] for number in kept], [values[number] for number in kept]
    axes.step(x, y, where="post", color=colour, linewidth=1.6, label=label)


def _colours(count: int) -> list[str]:
    return [_COLOURS[number % len(_COLOURS)] for number in range(count)]
