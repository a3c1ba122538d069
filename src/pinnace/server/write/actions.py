"""Subresources that are not the object itself: binding a pod to a node, evicting it."""

from __future__ import annotations

from pinnace.model import errors, field_errors, selectors
from pinnace.model.objects import Object
from pinnace.server.request.call import Call
from pinnace.server.write.edits import Edit

MOST_DISRUPTED = 2000
"""Evictions that the disruption controller has not confirmed yet."""
_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."

# Binding: the scheduler's word on where a pod runs.


def bound(call: Call, binding: Object, now: str) -> Edit:
    """The pod, assigned to the node that the binding names."""
    target = binding.get("target") or {}
    errs = []
    if target.get("kind") not in (None, "", "Node"):
        errs.append(field_errors.not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        errs.append(field_errors.required("target.name"))
    if errs:
        raise errors.Invalid(errs, group="", kind="Binding", name=call.name)

    def refused(why: str) -> errors.Conflict:
        return errors.Conflict(why, group="", plural="pods/binding", name=call.name)

    def edit(live: Object | None) -> Object:
        if live is None:
            raise call.not_found()
        uid = (binding.get("metadata") or {}).get("uid")
        if uid and uid != live["metadata"]["uid"]:
            raise refused(
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['metadata']['uid']}"
            )
        if "deletionTimestamp" in live["metadata"]:
            raise refused(f"pod {call.name} is being deleted, cannot be assigned to a host")
        spec = live["spec"]
        if spec.get("nodeName"):
            raise refused(f'pod {call.name} is already assigned to node "{spec["nodeName"]}"')
        if spec.get("schedulingGates"):
            raise refused(f"pod {call.name} has non-empty .spec.schedulingGates")
        metadata = dict(live["metadata"])
        for kind in ("annotations", "labels"):
            more = (binding.get("metadata") or {}).get(kind)
            if more:
                metadata[kind] = {**(metadata.get(kind) or {}), **more}
        status = dict(live.get("status") or {})
        others = [one for one in status.get("conditions") or [] if one.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        status["conditions"] = [*others, scheduled]
        return {**live, "metadata": metadata, "spec": {**spec, "nodeName": target["name"]}, "status": status}

    return edit


# Eviction: a deletion that a disruption budget may refuse.


def refuse_if_budget_is_spent(pod: Object, budgets: list[Object]) -> Object | None:
    """The budget that this eviction takes from, with its allowance reduced; None if no budget covers the pod.

    Raises TooManyRequests when the budget allows no further disruption, and Forbidden when its status is broken.
    """
    labels = pod["metadata"].get("labels") or {}
    covering = [
        one for one in budgets if selectors.from_object((one.get("spec") or {}).get("selector")).matches(labels)
    ]
    if not covering:
        return None
    if len(covering) > 1:
        raise errors.InternalError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    budget = covering[0]
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if not _is_ready(pod) and _lets_unready_pods_go(budget):
        return None
    _refuse_broken(name, status)
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        error = errors.TooManyRequests(_VIOLATION, retry_after=10)
        raise _because(error, f"The disruption budget {name} is still being processed by the server.")
    if status.get("disruptionsAllowed", 0) == 0:
        raise _because(errors.TooManyRequests(_VIOLATION), _reason_of(name, status))
    return {**budget, "status": {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}}


def _refuse_broken(name: str, status: Object) -> None:
    """A status that cannot be right allows nothing."""
    why = told = ""
    if status.get("disruptionsAllowed", 0) < 0:
        why = told = "pdb disruptions allowed is negative"
    elif len(status.get("disruptedPods") or ()) > MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        told = "too many pending evictions not confirmed by PDB controller"
    if why:
        error = errors.Forbidden(why, group="policy", plural="poddisruptionbudget", name=name)
        raise _because(error, f"The disruption budget {name} does not allow evicting pods currently: {told}")


def _reason_of(name: str, status: Object) -> str:
    """Why a budget allows no disruption. The counts mean nothing while it cannot be computed."""
    conditions = status.get("conditions") or ()
    allowed: Object = next((one for one in conditions if one.get("type") == "DisruptionAllowed"), {})
    told = allowed.get("message", "") if allowed.get("status") == "False" else ""
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    start = f"The disruption budget {name}"
    if told and allowed.get("reason") == "SyncFailed":
        return f"{start} does not allow evicting pods currently because it failed sync: {told}"
    if healthy <= wanted:
        return f"{start} needs {wanted} healthy pods and has {healthy} currently"
    if told:
        return f"{start} does not allow evicting pods currently ({allowed.get('reason', '')}): {told}"
    return f"{start} does not allow evicting pods currently"


def _because(error: errors.ApiError, why: str) -> errors.ApiError:
    error.details["causes"] = [*(error.details.get("causes") or ()), {"reason": "DisruptionBudget", "message": why}]
    return error


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _lets_unready_pods_go(budget: Object) -> bool:
    """A pod that does not serve disrupts nobody, if its budget says so or has enough others that do."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return bool(healthy >= wanted > 0)


def note_spent_budget(budget: Object, now: str) -> None:
    """Say in the budget's conditions when nothing is left of it."""
    status = budget["status"]
    if status["disruptionsAllowed"]:
        return
    conditions = list(status.get("conditions") or [])
    spent: Object = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": "InsufficientPods",
        "message": "",
    }
    for index, one in enumerate(conditions):
        if one.get("type") == spent["type"]:
            if one.get("status") == spent["status"]:
                spent["lastTransitionTime"] = one.get("lastTransitionTime", now)
            conditions[index] = spent
            break
    else:
        conditions.append(spent)
    status["conditions"] = conditions


def marked_for_eviction(call: Call, now: str) -> Edit:
    """The pod with the condition that tells its controllers why it goes."""

    def edit(live: Object | None) -> Object:
        if live is None:
            raise call.not_found()
        status = dict(live.get("status") or {})
        others = [one for one in status.get("conditions") or [] if one.get("type") != "DisruptionTarget"]
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        status["conditions"] = [*others, target]
        return {**live, "status": status}

    return edit
