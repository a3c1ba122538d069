"""Calls of plug-ins: an error or an invalid value fails the pod with the plug-in's name, never the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.plugin import HIGHEST_SCORE, Plugin
from pinnace.scheduler.framework.status import PluginError
from pinnace.scheduler.state.arrays import At, Codes, Integers

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def call(
    name: str,
    moment: str,
    function: Callable[Concatenate[Cycle, Parameters], Result],
    cycle: Cycle,
    *parameters: Parameters.args,
    **named: Parameters.kwargs,
) -> Result:
    """Call a plug-in. Raise PluginError with kube-scheduler's wording if it fails."""
    times = cycle.times
    began = times.now() if times is not None and times.is_sampled else None
    try:
        result = function(cycle, *parameters, **named)
    except Exception as error:
        if began is not None and times is not None:
            times.end_plugin(name, moment, began, error)
        if isinstance(error, PluginError):
            raise
        raise PluginError(name, f'running "{name}" {moment} plugin: {type(error).__name__}: {error}') from error
    if began is not None and times is not None:
        times.end_plugin(name, moment, began, result)
    return result


def filter_codes(plugin: Plugin, cycle: Cycle, at: At) -> Codes:
    """Return the codes of a filter. Raise PluginError if they are not one integer per selected node."""
    codes = call(plugin.name, "filter", plugin.filter, cycle, at)
    expected = _length(cycle, at)
    if not isinstance(codes, np.ndarray) or codes.shape != (expected,) or codes.dtype.kind not in "iub":
        raise PluginError(
            plugin.name,
            f'running "{plugin.name}" filter plugin: expected an array of {expected} integers, one per node, '
            f"found {_describe(codes)}",
        )
    return codes


def score_array(plugin: Plugin, cycle: Cycle, at: At) -> Integers:
    """Return the scores of a plug-in. Raise PluginError if they are not one number per selected node."""
    scores = call(plugin.name, "score", plugin.score, cycle, at)
    expected = _length(cycle, at)
    if not isinstance(scores, np.ndarray) or scores.shape != (expected,) or scores.dtype.kind not in "iufb":
        raise PluginError(
            plugin.name,
            f'running "{plugin.name}" score plugin: expected an array of {expected} numbers, one per node, '
            f"found {_describe(scores)}",
        )
    if scores.dtype == np.int64:
        return scores
    if scores.dtype.kind == "f" and not np.isfinite(scores).all():
        raise PluginError(plugin.name, f'running "{plugin.name}" score plugin: a score is not a finite number')
    return scores.astype(np.int64)


def check_range(name: str, scores: Integers) -> None:
    """Raise PluginError if a normalized score is not within 0 and 100."""
    if not len(scores):
        return
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest < 0 or highest > HIGHEST_SCORE:
        raise PluginError(
            name,
            f'plugin "{name}" returns an invalid score {lowest if lowest < 0 else highest}, '
            f"it should in the range of [0, {HIGHEST_SCORE}] after normalizing",
        )


def _length(cycle: Cycle, at: At) -> int:
    return cycle.state.size if isinstance(at, slice) else len(at)


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    return type(value).__name__
