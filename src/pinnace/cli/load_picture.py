"""Draws backtests of autoscalers as an SVG: the load, and the replicas of each autoscaler over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from pinnace.controllers.autoscaling.backtest import BacktestStep

_WIDTH, _HEIGHT, _EDGE = 960, 420, 48
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")
_LOAD = "#bbbbbb"


def draw(runs: Mapping[str, Sequence[BacktestStep]]) -> str:
    """Return the picture of one or more backtests of the same load. Times of unmet demand are marked below."""
    first = next(iter(runs.values()))
    most = max(step.replicas for steps in runs.values() for step in steps)
    highest = max((step.load for step in first), default=0) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _line([(step.at, step.load / highest) for step in first], _LOAD, width=1),
        f'<text x="4" y="{_EDGE}">{most} replicas</text>',
        f'<text x="{_WIDTH - 4}" y="{_EDGE - 8}" text-anchor="end" fill="#888">load, at most {highest / 1000:g}</text>',
    ]
    for number, (name, steps) in enumerate(runs.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(_line([(step.at, step.replicas / most) for step in steps], colour, width=2))
        below = _HEIGHT - _EDGE + 8 + 6 * number
        parts += [
            f'<rect x="{_x(step.at, steps):.1f}" y="{below}" width="1.5" height="5" fill="{colour}"/>'
            for step in steps
            if step.unmet
        ]
        parts.append(f'<text x="{_EDGE + 180 * number}" y="20" fill="{colour}">{escape(name)}</text>')
    return "\n".join((*parts, "</svg>", ""))


def _line(points: Sequence[tuple[float, float]], colour: str, *, width: int) -> str:
    start, span = points[0][0], (points[-1][0] - points[0][0]) or 1.0
    room_x, room_y = _WIDTH - 2 * _EDGE, _HEIGHT - 2 * _EDGE
    places = " ".join(
        f"{_EDGE + room_x * (at - start) / span:.1f},{_HEIGHT - _EDGE - room_y * value:.1f}" for at, value in points
    )
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _x(at: float, steps: Sequence[BacktestStep]) -> float:
    span = (steps[-1].at - steps[0].at) or 1.0
    return _EDGE + (_WIDTH - 2 * _EDGE) * (at - steps[0].at) / span
