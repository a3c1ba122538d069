"""Whether a container that has ended is started again. Pure functions."""

from __future__ import annotations

from pinnace.model.typed_objects import Container, Pod

RESTART, RESTART_ALL = "Restart", "RestartAllContainers"


def action_after(pod: Pod, container: Container, exit_code: int) -> str:
    """Return the action after the end of a container: Restart, RestartAllContainers, or empty for none.

    The first rule that matches the exit code decides; without one the container's own restart policy, or the pod's.
    """
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes")
        is_listed = codes is not None and exit_code in (codes.get("values") or ())
        if is_listed == (codes is not None and codes.get("operator") == "In"):
            return rule["action"]
    policy = container.get("restartPolicy") or _pod_policy(pod, container)
    restarts = policy == "Always" or (policy == "OnFailure" and exit_code != 0)
    return RESTART if restarts else ""


def restarts_after(pod: Pod, container: Container, exit_code: int) -> bool:
    return bool(action_after(pod, container, exit_code))


def _pod_policy(pod: Pod, container: Container) -> str:
    """The policy of the pod. Init containers that have succeeded are never restarted, ephemeral ones never at all."""
    spec = pod["spec"]
    policy = str(spec.get("restartPolicy", "Always"))
    name = container["name"]
    if any(other["name"] == name for other in spec.get("ephemeralContainers") or ()):
        return "Never"
    if any(other["name"] == name for other in spec.get("initContainers") or ()):
        return "Never" if policy == "Never" else "OnFailure"
    return policy
