"""Plug-ins made of an author's functions, one for each. Errors of a function fail its pod, with the function's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import Diagnosis
from pinnace.scheduler.framework.events import EventRegistration
from pinnace.scheduler.framework.one_node import NodeView
from pinnace.scheduler.framework.plugin import Filters, Nomination, Plugin, Wait
from pinnace.scheduler.framework.queued import QueuedPod
from pinnace.scheduler.framework.status import OnlyNodes, PluginError, Refusal, unresolvable, unschedulable
from pinnace.scheduler.state.arrays import ALL, At, Codes, Integers, Mask, Slots, slots_of
from pinnace.scheduler.state.pods import Pod
from pinnace.sdk.scheduling.context import SchedulerContext, SchedulerRuntime, context_of
from pinnace.sdk.scheduling.nodes import NodeArrays

Function = Callable[..., Any]


class Moment(Plugin):
    """A function that takes part in one moment, under its own name."""

    takes_context = False
    """Whether the function takes a SchedulerContext after its other arguments."""
    wakes: Sequence[EventRegistration] | None = None
    """The changes after which a pod that it has refused is tried again; None for every change."""
    _runtime: SchedulerRuntime | None = None

    def __init__(self, name: str, function: Function) -> None:
        self.name = name
        self._function = function

    @property
    def function(self) -> Function:
        """The author's function."""
        return self._function

    def of_run(self, runtime: SchedulerRuntime) -> Self:
        """Return the plug-in for one run, whose caches and state the function gets."""
        twin = copy(self)
        twin._runtime = runtime
        return twin

    def events(self) -> Sequence[EventRegistration] | None:
        return self.wakes

    def _of(self, cycle: Cycle | None) -> Function:
        """Return the function, with the context of an attempt if it takes one."""
        return self._with_context(self._function, cycle)

    def _with_context(self, function: Function, cycle: Cycle | None) -> Function:
        if not self.takes_context:
            return function
        runtime = self._runtime
        assert runtime is not None, "the registry makes the plug-ins of a run"
        context = SchedulerContext(runtime, {}) if cycle is None else context_of(runtime, cycle)
        return lambda *arguments: function(*arguments, context)


class PreEnqueueFunction(Moment):
    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        reason = self._of(None)(pod)
        return unresolvable(str(reason), plugin=self.name) if reason else None


class QueueSortFunction(Moment):
    def sort_key(self, queued: QueuedPod) -> Any:
        return self._of(None)(queued.pod), queued.added, queued.number


class PreFilterFunction(Moment):
    def pre_filter(self, cycle: Cycle) -> Refusal | OnlyNodes | None:
        answer = self._of(cycle)(cycle.pod)
        if answer is None:
            return None
        if isinstance(answer, str):
            return unresolvable(answer)
        if isinstance(answer, Collection):
            return OnlyNodes(frozenset(answer))
        raise TypeError(f"expected a reason, the names of nodes or None, found {answer!r}")


class OneNodeFilterFunction(Moment):
    """Called once for each node that other filters have left."""

    def __init__(self, name: str, function: Function, reason: str) -> None:
        super().__init__(name, function)
        self._reason = reason

    def filter(self, cycle: Cycle, at: At) -> Codes:
        slots = slots_of(at, cycle.state.size)
        present = cycle.state.nodes.present
        reasons: dict[str, int] = cycle.data.setdefault(self.name, {})
        codes = np.zeros(len(slots), dtype=np.int32)
        function = self._of(cycle)
        for position, slot in enumerate(slots.tolist()):
            if present[slot]:
                reason = self._reason_of(function(cycle.pod, NodeView(cycle.state, slot)))
                if reason:
                    codes[position] = reasons.setdefault(reason, len(reasons) + 1)
        return codes

    def _reason_of(self, answer: Any) -> str:
        if answer is None or answer is True:
            return ""
        if answer is False:
            return self._reason
        if isinstance(answer, str):
            return answer
        raise TypeError(f"expected a reason, True, False or None, found {answer!r}")

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return unschedulable(list(cycle.data[self.name])[code - 1])


class ArrayFilterFunction(Moment):
    """Called once for all nodes."""

    def __init__(self, name: str, function: Function, reason: str) -> None:
        super().__init__(name, function)
        self._reason = reason

    def filter(self, cycle: Cycle, at: At) -> Codes:
        nodes = NodeArrays(cycle.state, at)
        fits = np.asarray(self._of(cycle)(cycle.pod, nodes))
        if fits.shape != (len(nodes),) or fits.dtype != np.bool_:
            raise TypeError(
                f"expected an array of {len(nodes)} booleans, one per node, found shape {fits.shape} of {fits.dtype}"
            )
        codes: Codes = _scatter(cycle, at, nodes, (~fits).astype(np.int32))
        return codes

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return unschedulable(self._reason)


class PostFilterFunction(Moment):
    def post_filter(self, cycle: Cycle, diagnosis: Diagnosis, filters: Filters) -> Nomination | Refusal:
        answer = self._of(cycle)(cycle.pod, {name: refusal.message for name, refusal in diagnosis.by_node()})
        return answer if isinstance(answer, Nomination) else unschedulable(str(answer or ""))


class PreScoreFunction(Moment):
    def pre_score(self, cycle: Cycle, feasible: Mask) -> None:
        self._of(cycle)(cycle.pod, NodeArrays(cycle.state, np.flatnonzero(feasible)))


class OneNodeScoreFunction(Moment):
    """Called once for each node that fits."""

    def score(self, cycle: Cycle, at: At) -> Integers:
        present, function = cycle.state.nodes.present, self._of(cycle)
        return np.array(
            [
                _whole(function(cycle.pod, NodeView(cycle.state, slot))) if present[slot] else 0
                for slot in slots_of(at, cycle.state.size).tolist()
            ],
            dtype=np.int64,
        )


class ArrayScoreFunction(Moment):
    """Called once for all nodes."""

    def score(self, cycle: Cycle, at: At) -> Integers:
        nodes = NodeArrays(cycle.state, at)
        scores = np.asarray(self._of(cycle)(cycle.pod, nodes))
        if scores.shape != (len(nodes),) or scores.dtype.kind not in "iufb":
            raise TypeError(
                f"expected an array of {len(nodes)} numbers, one per node, found shape {scores.shape} of {scores.dtype}"
            )
        if scores.dtype.kind == "f" and not np.isfinite(scores).all():
            raise ValueError("a score is not a finite number")
        spread: Integers = _scatter(cycle, at, nodes, scores.astype(np.int64))
        return spread


class _Normalized:
    """Adds NormalizeScore: scores of any range become 0 to 100 among the nodes that fit."""

    is_reversed = False

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return np.full(len(scores), 100, dtype=np.int64)
        scaled: Integers = (scores - lowest) * 100 // (highest - lowest)
        return 100 - scaled if self.is_reversed else scaled


class NormalizedOneNodeScore(_Normalized, OneNodeScoreFunction):
    pass


class NormalizedArrayScore(_Normalized, ArrayScoreFunction):
    pass


class ReserveFunction(Moment):
    def __init__(self, name: str, function: Function | None, undo: Function | None) -> None:
        super().__init__(name, function or _nothing)
        self._undo = undo or _nothing

    @property
    def function(self) -> Function:
        return self._undo if self._function is _nothing else self._function

    def reserve(self, cycle: Cycle, node: str) -> Refusal | None:
        reason = self._of(cycle)(cycle.pod, node)
        return unschedulable(str(reason)) if reason else None

    def unreserve(self, cycle: Cycle, node: str) -> None:
        self._with_context(self._undo, cycle)(cycle.pod, node)


class PermitFunction(Moment):
    def permit(self, cycle: Cycle, node: str) -> Refusal | Wait | None:
        answer = self._of(cycle)(cycle.pod, node)
        return answer if answer is None or isinstance(answer, Wait) else unschedulable(str(answer))


class PreBindFunction(Moment):
    async def pre_bind(self, cycle: Cycle, node: str) -> Refusal | None:
        reason = await _awaited(self._of(cycle)(cycle.pod, node))
        return unschedulable(str(reason)) if reason else None


class BindFunction(Moment):
    async def bind(self, cycle: Cycle, node: str) -> bool:
        done = await _awaited(self._of(cycle)(cycle.pod, node))
        if not isinstance(done, bool):
            message = f"expected True after binding, False to leave it to others, found {done!r}"
            raise PluginError(self.name, f'running Bind plugin "{self.name}": {message}')
        return done


class PostBindFunction(Moment):
    def post_bind(self, cycle: Cycle, node: str) -> None:
        self._of(cycle)(cycle.pod, node)


def _scatter(cycle: Cycle, at: At, nodes: NodeArrays, values: Any) -> Any:
    """Return one value per selected slot; slots without a node get 0."""
    selected = cycle.state.size if isinstance(at, slice) else len(at)
    if len(nodes) == selected:
        return values
    spread = np.zeros(cycle.state.size, dtype=values.dtype)
    spread[nodes.slots] = values
    return spread if at == ALL else spread[at]


def _whole(score: Any) -> int:
    if isinstance(score, bool) or not isinstance(score, int | float | np.number):
        raise TypeError(f"expected a number from 0 to 100, found {score!r}")
    return int(score)


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def _nothing(*arguments: Any) -> None:
    return None
