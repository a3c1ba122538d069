"""The amounts that a pod requests and a node offers, as integers: thousandths of a cpu, whole units of all else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from pinnace.model.objects import Object
from pinnace.model.quantity import parse

Amounts = Mapping[str, int]
_POD_LEVEL = ("cpu", "memory")


def requests_of(pod: Object) -> dict[str, int]:
    """The sum of the containers, or the largest moment of the init containers, plus overhead."""
    spec = pod["spec"]
    total = _sum(_requests(one) for one in spec["containers"])
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        wanted = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, wanted))
            wanted = sidecars
        else:
            wanted = _sum((sidecars, wanted))
        peak = _largest(peak, wanted)
    total = _largest(_sum((total, sidecars)), peak)
    stated = (spec.get("resources") or {}).get("requests") or {}
    for name, amount in stated.items():
        if name in _POD_LEVEL or name.startswith("hugepages-"):
            total[name] = _amount(name, amount)
    return _sum((total, amounts_of(spec.get("overhead") or {})))


def amounts_of(resources: Mapping[str, str | int]) -> dict[str, int]:
    return {name: _amount(name, amount) for name, amount in resources.items()}


def _requests(container: Object) -> dict[str, int]:
    return amounts_of((container.get("resources") or {}).get("requests") or {})


@lru_cache(maxsize=4096)
def _amount(name: str, amount: str | int) -> int:
    parsed = parse(amount)
    return parsed.milli_value if name == "cpu" else parsed.value


def _sum(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _largest(left: Amounts, right: Amounts) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
