"""When two values say the same: what is empty says nothing, as it does in Kubernetes' own comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Where false or zero is what one gets by saying nothing. Elsewhere they say something: runAsUser 0 is root.
_PLAIN_SWITCHES = frozenset(
    {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "stdin",
        "stdinOnce",
        "tty",
        "readOnly",
        "hostPort",
        "initialDelaySeconds",
        "minReadySeconds",
        "paused",
    }
)


def alike(new: Any, old: Any) -> bool:
    """Whether nothing was changed, save that something empty came or went."""
    if new == old:
        return True
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        return all(
            alike(new.get(key), old.get(key)) or (key in _PLAIN_SWITCHES and not new.get(key) and not old.get(key))
            for key in new.keys() | old.keys()
        )
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(alike, new, old))
    return _says_nothing(new) and _says_nothing(old)


def _says_nothing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, (dict, list)) and not value)
