"""Draws backtests of autoscalers: load and capacity, replicas, utilization and unmet demand over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinnace.controllers.autoscaling.backtest import BacktestStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
