"""Eviction: a deletion that a PodDisruptionBudget may refuse."""

from __future__ import annotations

from pinnace.model import errors, selectors
from pinnace.model.objects import Object
from pinnace.model.resources import Registry
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.request.call import Call
from pinnace.serving.write.body_decoder import match_namespace, metadata_of
from pinnace.serving.write.deletion import parse_delete_options
from pinnace.serving.write.edits import Edit
from pinnace.serving.write.pipeline import Pipeline

MOST_DISRUPTED = 2000
"""Evictions that the disruption controller has not confirmed yet."""
_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."


class Evictions:
    """Evicts pods."""

    def __init__(self, registry: Registry, fanout: Fanout, pipeline: Pipeline, clock: Clock) -> None:
        self._registry = registry
        self._fanout = fanout
        self._pipeline = pipeline
        self._clock = clock

    async def evict(self, call: Call, eviction: Object) -> None:
        """Delete the pod that the call names, if its disruption budget allows it."""
        metadata = metadata_of(eviction)
        if metadata.get("name", "") != call.name:
            raise errors.BadRequest("name in URL does not match name in Eviction object")
        match_namespace(call, metadata)
        raw = eviction.get("deleteOptions") or {}
        options = parse_delete_options(call, raw)
        await self._pipeline.admit(call, eviction)
        pipeline = self._pipeline.without_admission()
        entry = self._fanout.cache(call.resource.prefix).entries.get(call.key)
        if entry is None:
            raise call.not_found()
        pod = entry.decode()
        phase = (pod.get("status") or {}).get("phase")
        if phase not in ("Succeeded", "Failed", "Pending") and "deletionTimestamp" not in pod["metadata"]:
            await self._spend_budget(call, pod)
        if not call.is_dry_run:
            marking = Call("update", call.resource, call.namespace, call.name, "status", "", call.request, call.user)
            await pipeline.write(marking, mark_edit(call, to_rfc3339(self._clock.now())))
        deletion = Call(
            "delete", call.resource, call.namespace, call.name, "", "", call.request, call.user, call.warnings
        )
        await pipeline.delete(deletion, options, raw_options=raw)

    async def _spend_budget(self, call: Call, pod: Object) -> None:
        """Take one disruption from the budget that covers the pod, atomically with other evictions."""
        budgets = self._registry.find("policy", "v1", "poddisruptionbudgets")
        if budgets is None:
            return
        cache = self._fanout.cache(budgets.prefix)
        stored = [cache.entries[key].decode() for key in cache.keys_of(call.namespace)]
        spent = take_disruption(pod, stored)
        if spent is None:
            return
        name = spent["metadata"]["name"]
        update = Call("update", budgets, call.namespace, name, "status", "", call.request, call.user)

        def edit(live: Object | None) -> Object:
            again = take_disruption(pod, [live] if live is not None else [])
            if again is None:
                raise call.conflict("the disruption budget has changed; try again")
            now = to_rfc3339(self._clock.now())
            again["status"]["disruptedPods"] = {**(again["status"].get("disruptedPods") or {}), call.name: now}
            note_spent_budget(again, now)
            return {**again, "metadata": dict(again["metadata"])}

        await self._pipeline.without_admission().write(update, edit)


def take_disruption(pod: Object, budgets: list[Object]) -> Object | None:
    """Return the budget of the pod with one disruption less; None if no budget covers the pod.

    Raise TooManyRequests when the budget allows no further disruption, and Forbidden when its status is broken.
    """
    labels = pod["metadata"].get("labels") or {}
    covering = [
        candidate
        for candidate in budgets
        if selectors.from_object((candidate.get("spec") or {}).get("selector")).matches(labels)
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
    """Raise Forbidden if the status of a budget cannot be right."""
    why = detail = ""
    if status.get("disruptionsAllowed", 0) < 0:
        why = detail = "pdb disruptions allowed is negative"
    elif len(status.get("disruptedPods") or ()) > MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        detail = "too many pending evictions not confirmed by PDB controller"
    if why:
        error = errors.Forbidden(why, group="policy", plural="poddisruptionbudget", name=name)
        raise _because(error, f"The disruption budget {name} does not allow evicting pods currently: {detail}")


def _reason_of(name: str, status: Object) -> str:
    """Return why a budget allows no disruption. The counts mean nothing while it cannot be computed."""
    conditions = status.get("conditions") or ()
    allowed: Object = next((condition for condition in conditions if condition.get("type") == "DisruptionAllowed"), {})
    message = allowed.get("message", "") if allowed.get("status") == "False" else ""
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    start = f"The disruption budget {name}"
    if message and allowed.get("reason") == "SyncFailed":
        return f"{start} does not allow evicting pods currently because it failed sync: {message}"
    if healthy <= wanted:
        return f"{start} needs {wanted} healthy pods and has {healthy} currently"
    if message:
        return f"{start} does not allow evicting pods currently ({allowed.get('reason', '')}): {message}"
    return f"{start} does not allow evicting pods currently"


def _because(error: errors.ApiError, why: str) -> errors.ApiError:
    error.details["causes"] = [*(error.details.get("causes") or ()), {"reason": "DisruptionBudget", "message": why}]
    return error


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _lets_unready_pods_go(budget: Object) -> bool:
    """Whether an unready pod may go: its policy says so, or enough other pods are healthy."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return bool(healthy >= wanted > 0)


def note_spent_budget(budget: Object, now: str) -> None:
    """Set the condition of a budget that allows no further disruption."""
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
    for index, condition in enumerate(conditions):
        if condition.get("type") == spent["type"]:
            if condition.get("status") == spent["status"]:
                spent["lastTransitionTime"] = condition.get("lastTransitionTime", now)
            conditions[index] = spent
            break
    else:
        conditions.append(spent)
    status["conditions"] = conditions


def mark_edit(call: Call, now: str) -> Edit:
    """Return the edit that sets the DisruptionTarget condition, by which controllers see why the pod goes."""

    def edit(live: Object | None) -> Object:
        if live is None:
            raise call.not_found()
        status = dict(live.get("status") or {})
        others = [
            condition for condition in status.get("conditions") or [] if condition.get("type") != "DisruptionTarget"
        ]
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
