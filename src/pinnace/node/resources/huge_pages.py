"""The huge pages of this machine: the capacity of the node, the limits of pods, and the page size of their volumes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from pinnace.kinds.pods.resource_amounts import HUGE_PAGES
from pinnace.model import quantity
from pinnace.model.quantity import Format, InvalidQuantity
from pinnace.model.typed_objects import Pod, ResourceRequirements

MEDIUM = "HugePages"
"""The medium of an emptyDir of huge pages; the size of the pages may follow: HugePages-2Mi."""
_POOLS = Path("/sys/kernel/mm/hugepages")
_POOL = re.compile("hugepages-([0-9]+)kB")


class NoHugePages(ValueError):
    """A volume of huge pages cannot be made; the message is kubelet's."""


@cache
def page_sizes(pools: Path = _POOLS) -> tuple[int, ...]:
    """Return the sizes of huge pages that this machine has, in bytes."""
    names = [_POOL.fullmatch(path.name) for path in pools.iterdir()] if pools.is_dir() else []
    return tuple(sorted(int(name[1]) << 10 for name in names if name is not None))


def capacity_of_pages(pools: Path = _POOLS) -> dict[str, str]:
    """Return the capacity by resource name, 0 for a size of which the machine has no pages."""
    counts = {size: int((pools / f"hugepages-{size >> 10}kB/nr_hugepages").read_text()) for size in page_sizes(pools)}
    return {f"{HUGE_PAGES}{_text(size)}": _text(size * count) for size, count in counts.items()}


def allocatable_of(capacity: Mapping[str, str], reserved: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what pods can have of a capacity: not what is reserved. Huge pages are no memory for anything else."""
    if reserved:
        capacity = {name: _without(amount, reserved.get(name)) for name, amount in capacity.items()}
    pages = [amount for name, amount in capacity.items() if name.startswith(HUGE_PAGES) and quantity.parse(amount)]
    if not pages or "memory" not in capacity:
        return dict(capacity)
    rest = quantity.parse(capacity["memory"]).value - sum(quantity.parse(amount).value for amount in pages)
    return {**capacity, "memory": str(quantity.of(max(0, rest), Format.BINARY_SI))}


def _without(amount: str, reserved: str | None) -> str:
    if reserved is None:
        return amount
    rest = quantity.parse(amount) - quantity.parse(reserved)
    return str(rest) if rest > quantity.parse("0") else "0"


def limits_of_pages(limits: Mapping[str, str]) -> dict[str, int]:
    """Return the limit of each page size of this machine in bytes, by the name of the size in control groups."""
    return {unit: quantity.parse(limits.get(name, "0")).value for unit, name in _units()}


def page_size_of_medium(medium: str, pod: Pod) -> int:
    """Return the page size of an emptyDir. Raise NoHugePages if no container requests such pages."""
    stated = medium.removeprefix(MEDIUM).removeprefix("-")
    wanted = quantity.parse(stated).value if stated else 0
    sizes = {size for size in _requested_sizes(pod) if not wanted or size == wanted}
    if len(sizes) > 1:
        raise NoHugePages(f"medium: {medium} can't be used if container requests multiple huge page sizes")
    if not sizes:
        raise NoHugePages(
            f"medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    return sizes.pop()


def _requested_sizes(pod: Pod) -> Iterator[int]:
    spec = pod["spec"]
    containers = [*spec["containers"], *(spec.get("initContainers") or ())]
    everything: list[ResourceRequirements | None] = [spec.get("resources")]
    for resources in (*everything, *(container.get("resources") for container in containers)):
        for name in (resources or {}).get("requests") or ():
            if name.startswith(HUGE_PAGES):
                with contextlib.suppress(InvalidQuantity):
                    yield quantity.parse(name.removeprefix(HUGE_PAGES)).value


def _text(size: int) -> str:
    return str(quantity.of(size, Format.BINARY_SI))


@cache
def _units() -> list[tuple[str, str]]:
    """Return the sizes of this machine as control groups write them, such as 2MB, and their resource names."""
    return [(_text(size).replace("i", "B"), f"{HUGE_PAGES}{_text(size)}") for size in page_sizes()]
