"""The policies of a Job: the effect of a failed pod, and when enough indexes have succeeded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pinnace.controllers.batch.indexes import Indexes
from pinnace.controllers.batch.job_pods import JobPod
from pinnace.process.work_slices import Turns


class Judgment(NamedTuple):
    """The effect of a pod failure policy on one failed pod."""

    action: str = ""
    message: str = ""
    """Why the Job fails; only with FailJob."""

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards the back-off limit."""
        return self.action != "Ignore"


COUNTED = Judgment()


def judge(policy: Mapping[str, Any] | None, pod: JobPod) -> Judgment:
    """Apply the first rule that matches. A failure that no rule matches counts."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        why = ""
        if rule.get("onExitCodes"):
            why = _exit_code_reason(rule["onExitCodes"], pod)
        elif rule.get("onPodConditions"):
            why = _condition_reason(rule["onPodConditions"], pod)
        if why:
            action = rule["action"]
            message = f"{why} matching FailJob rule at index {number}" if action == "FailJob" else ""
            return Judgment(action, message)
    return COUNTED


def _exit_code_reason(requirement: Mapping[str, Any], pod: JobPod) -> str:
    wanted = requirement.get("containerName")
    for name, code in pod.exit_codes:
        if wanted not in (None, name):
            continue
        if (code in requirement["values"]) == (requirement["operator"] == "In"):
            return f"Container {name} for pod {pod.key} failed with exit code {code}"
    return ""


def _condition_reason(patterns: list[Mapping[str, Any]], pod: JobPod) -> str:
    for type_, status in pod.conditions:
        if any(pattern["type"] == type_ and pattern.get("status", "True") == status for pattern in patterns):
            return f"Pod {pod.key} has condition {type_}"
    return ""


async def met_success_rule(policy: Mapping[str, Any] | None, completions: int, succeeded: Indexes) -> str:
    """Return the message for the first rule of a success policy that is met; empty if none is.

    Each of twenty rules may have 64 KiB of indexes: other work gets its turn in between.
    """
    if not policy or not len(succeeded):
        return ""
    turns = Turns()
    for number, rule in enumerate(policy.get("rules") or ()):
        if _is_met(rule, completions, succeeded):
            return f"Matched rules at index {number}"
        await turns.pause()
    return ""


def _is_met(rule: Mapping[str, Any], completions: int, succeeded: Indexes) -> bool:
    count, text = rule.get("succeededCount"), rule.get("succeededIndexes")
    if text is None:
        return count is not None and len(succeeded) >= count
    entries = text.count(",") + 1
    if len(succeeded) < (entries if count is None else min(count, entries)):
        return False  # Each entry has indexes of its own: too few have succeeded, whichever they are.
    required = Indexes.parse(text, completions)
    reached = required.overlap(succeeded)
    return len(required) > 0 and (reached == len(required) or (count is not None and reached >= count))
