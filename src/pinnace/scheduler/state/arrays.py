"""The array types of the scheduler, and arrays that grow with the number of nodes."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]
Slots: TypeAlias = npt.NDArray[np.intp]
At: TypeAlias = slice | Slots
"""A selection of nodes: ALL, or an array of slots."""

ALL = slice(None)
Element = TypeVar("Element", bound=np.generic)


def grow(array: npt.NDArray[Element], size: int, fill: int = 0) -> npt.NDArray[Element]:
    """Return a copy whose last dimension has `size` elements; new ones have the value `fill`."""
    grown = np.full((*array.shape[:-1], size), fill, dtype=array.dtype)
    grown[..., : array.shape[-1]] = array
    return grown


def divide(left: Integers, right: Integers | int) -> Integers:
    """Divide as Go does: truncate toward zero. Numpy rounds down, which differs for negative quotients."""
    quotient: Integers = np.floor_divide(left, right)
    quotient += (left % right != 0) & ((left < 0) != (np.asarray(right) < 0))
    return quotient


def slots_of(at: At, size: int) -> Slots:
    """Return the slots of a selection."""
    return np.arange(size) if isinstance(at, slice) else at


def grow_to(array: npt.NDArray[Element], size: int) -> npt.NDArray[Element]:
    """Return the first `size` elements; a larger copy if there are fewer."""
    return array[:size] if len(array) >= size else grow(array, size)
