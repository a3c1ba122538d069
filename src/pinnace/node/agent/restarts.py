"""Whether a container that has ended is started again. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pinnace.model.objects import Object

RESTART, RESTART_ALL = "Restart", "RestartAllContainers"


def action_after(pod: Object, container: Object, exit_code: int) -> str:
    """Return the action after the end of a container: Restart, RestartAllContainers, or empty for none.

    The first rule that matches the exit code decides; without one the container's own restart policy, or the pod's.
    """
    for rule in container.get("restartPolicyRules") or ():
        if _matches(rule.get("exitCodes") or {}, exit_code):
            return str(rule["action"])
    policy = container.get("restartPolicy") or _pod_policy(pod, container)
    restarts = policy == "Always" or (policy == "OnFailure" and exit_code != 0)
    return RESTART if restarts else ""


def restarts_after(pod: Object, container: Object, exit_code: int) -> bool:
    return bool(action_after(pod, container, exit_code))


def _pod_policy(pod: Object, container: Object) -> str:
    """The policy of the pod. Init containers that have succeeded are never restarted, ephemeral ones never at all."""
    spec = pod["spec"]
    policy = str(spec.get("restartPolicy", "Always"))
    name = container["name"]
    if any(one["name"] == name for one in spec.get("ephemeralContainers") or ()):
        return "Never"
    if any(one["name"] == name for one in spec.get("initContainers") or ()):
        return "Never" if policy == "Never" else "OnFailure"
    return policy


def _matches(codes: Mapping[str, Any], exit_code: int) -> bool:
    is_listed = exit_code in (codes.get("values") or ())
    return is_listed if codes.get("operator") == "In" else not is_listed
