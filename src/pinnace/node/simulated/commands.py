"""The few commands whose outcome needs no container: sleep N, exit N, true and false, alone or as a line of a shell.

The image `pause` without a command, `pause`, `sleep infinity` and `tail -f /dev/null` never end.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from pinnace.model.objects import Object

_ENDLESS = ("pause", "agnhost pause", "sleep infinity", "exec sleep infinity", "tail -f /dev/null")
_SHELLS = ("sh", "bash", "ash", "dash")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_sleep = re.compile(r"(?:exec )?sleep (\d{1,9}(?:\.\d{1,3})?)([smhd]?)")
_exit = re.compile(r"exit (\d{1,3})")


class CommandOutcome(NamedTuple):
    """When the containers of a pod end, and their exit code."""

    seconds: float = 0.0
    code: int = 0

    @property
    def is_never(self) -> bool:
        return self.seconds == math.inf


NEVER = CommandOutcome(seconds=math.inf)


def outcome_of(pod: Object) -> CommandOutcome:
    """Return when the last container ends, and the first exit code that is not 0. Unknown commands succeed at once."""
    outcomes = [_outcome(container) for container in pod["spec"]["containers"]]
    code = next((one.code for one in outcomes if one.code), 0)
    return CommandOutcome(max(one.seconds for one in outcomes), code)


def _outcome(container: Object) -> CommandOutcome:
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        name = container.get("image", "").rpartition("/")[2].partition(":")[0].partition("@")[0]
        return NEVER if name == "pause" else CommandOutcome()
    if words[0].rpartition("/")[2] in _SHELLS and len(words) == 3 and words[1] == "-c":
        line = words[2]
    else:
        line = " ".join([words[0].rpartition("/")[2], *words[1:]])
    seconds, code = 0.0, 0
    for step in re.split(r"\s*(?:;|&&|\n)\s*", line.strip()):
        if step in _ENDLESS:
            return NEVER
        slept, left = _sleep.fullmatch(step), _exit.fullmatch(step)
        if slept is not None:
            seconds += float(slept[1]) * _UNITS[slept[2]]
        elif left is not None or step in ("true", "false"):
            code = int(left[1]) & 255 if left is not None else int(step == "false")
            break
    return CommandOutcome(seconds, code)
