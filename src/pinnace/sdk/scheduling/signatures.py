"""The parameters of a scheduler's functions, checked where they are declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

TAKES_NODE = "node"
TAKES_NODES = "nodes"

SIGNATURES = {
    "pre_enqueue": "def {name}(pod: Pod) -> str | None",
    "queue_sort": "def {name}(pod: Pod) -> Any",
    "pre_filter": "def {name}(pod: Pod) -> str | Collection[str] | None",
    "filter": "def {name}(pod: Pod, node: NodeView) -> str | None or def {name}(pod: Pod, nodes: NodeArrays) -> Array",
    "post_filter": "def {name}(pod: Pod, reasons: Mapping[str, str]) -> Nomination | str | None",
    "pre_score": "def {name}(pod: Pod, nodes: NodeArrays) -> None",
    "score": "def {name}(pod: Pod, node: NodeView) -> float or def {name}(pod: Pod, nodes: NodeArrays) -> Array",
    "reserve": "def {name}(pod: Pod, node: str) -> str | None",
    "unreserve": "def {name}(pod: Pod, node: str) -> None",
    "permit": "def {name}(pod: Pod, node: str) -> str | Wait | None",
    "pre_bind": "async def {name}(pod: Pod, node: str) -> str | None",
    "bind": "async def {name}(pod: Pod, node: str) -> bool",
    "post_bind": "def {name}(pod: Pod, node: str) -> None",
}
"""The moments that a scheduler's functions can take part in, and how each is called."""

_ONE = ("pre_enqueue", "queue_sort", "pre_filter")
_MAY_AWAIT = ("pre_bind", "bind")


def check_function(function: Callable[..., Any], moment: str) -> None:
    """Raise TypeError, with the right signature, unless a function can be called at a moment."""
    if not callable(function):
        raise TypeError(f"@scheduler.{moment} stands above a function, not {function!r}")
    expected = SIGNATURES[moment].format(name=name_of(function))
    wanted = 1 if moment in _ONE else 2
    try:
        inspect.signature(function).bind(*[None] * wanted)
    except TypeError:
        written = f"{name_of(function)}{inspect.signature(function)}"
        raise TypeError(f"@scheduler.{moment} cannot call {written}: write {expected}") from None
    if inspect.iscoroutinefunction(function) and moment not in _MAY_AWAIT:
        raise TypeError(f"@scheduler.{moment} cannot wait for {name_of(function)}: write {expected}")


def taken_by(function: Callable[..., Any], moment: str) -> str:
    """Return TAKES_NODE or TAKES_NODES, from the annotation or the name of the second parameter. Raise TypeError."""
    check_function(function, moment)
    second = list(inspect.signature(function).parameters.values())[1]
    annotation = second.annotation if isinstance(second.annotation, str) else getattr(second.annotation, "__name__", "")
    match annotation.rpartition(".")[2]:
        case "NodeArrays":
            return TAKES_NODES
        case "NodeView":
            return TAKES_NODE
    if second.name in (TAKES_NODE, TAKES_NODES):
        return second.name
    raise TypeError(
        f"@scheduler.{moment}: {name_of(function)} does not tell whether {second.name} is one node or all of them: "
        f"write {SIGNATURES[moment].format(name=name_of(function))}"
    )


def name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
