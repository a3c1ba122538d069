"""Numbers of users and groups as text: an image decides about such text, so that it is read in one way everywhere.

The supervisors import this module: keep its imports small.
"""

from __future__ import annotations

LARGEST_ID = (1 << 31) - 1
"""Larger ones overflow, and the largest of 32 bits means no change to the kernel: the process would stay root."""
BEYOND_ALL = 1 << 32
"""In place of every number that no system has, however long it is."""


def id_of(text: str) -> int | None:
    """Return the number that a text is; None for a name. A number is never a name, whatever the image lists as names.

    Digits of other scripts make a name: int() reads them, Kubernetes and the other runtimes do not.
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= len(str(BEYOND_ALL)) else BEYOND_ALL
