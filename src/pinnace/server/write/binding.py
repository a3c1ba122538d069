"""Binding: assigns a pod to a node, through pods/binding or the bindings collection."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.model import errors, field_errors
from pinnace.model.objects import Object
from pinnace.model.resources import Registry
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.serving.request.call import Call
from pinnace.serving.write.body_decoder import match_namespace, metadata_of
from pinnace.serving.write.edits import UnexplainedError
from pinnace.serving.write.pipeline import Pipeline

_SCHEDULED = "PodScheduled"


class PodBinder:
    """Binds pods to nodes."""

    def __init__(self, registry: Registry, pipeline: Pipeline, clock: Clock) -> None:
        self._registry = registry
        self._pipeline = pipeline
        self._clock = clock

    async def bind(self, call: Call, binding: Object) -> None:
        """Assign the pod that the call names to the node that the binding names."""
        if metadata_of(binding).get("name", "") != call.name:
            raise errors.BadRequest("name in URL does not match name in Binding object")
        match_namespace(call, metadata_of(binding))
        await self._pipeline.admit(call, binding)
        edit = bind_edit(call, binding, to_rfc3339(self._clock.now()))
        await self._pipeline.rewrite(call, edit)

    def on_pod(self, call: Call, binding: Object) -> Call:
        """Return the call for a Binding that was posted to the bindings collection, named after its pod."""
        pods = self._registry.find("", "v1", "pods")
        assert pods is not None, "every cluster serves pods"
        name = metadata_of(binding).get("name", "")
        return Call("create", pods, call.namespace, name, "binding", "", call.request, call.user, call.warnings)


def bind_edit(call: Call, binding: Object, now: str) -> Callable[[Object], None]:
    """Return the edit that assigns a pod to the node that the binding names."""
    target = binding.get("target") or {}
    errs = []
    if target.get("kind") not in (None, "", "Node"):
        errs.append(field_errors.not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        errs.append(field_errors.required("target.name"))
    if errs:
        messages = [str(err) for err in errs]
        raise UnexplainedError(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")
    given = binding.get("metadata") or {}

    def edit(pod: Object) -> None:
        if why := _conflict(call.name, pod, given):
            raise errors.Conflict(why, group="", plural="pods/binding", name=call.name)
        assign(pod, target["name"], now)
        for kind in ("annotations", "labels"):
            if more := given.get(kind):
                pod["metadata"][kind] = {**(pod["metadata"].get(kind) or {}), **more}

    return edit


def assign(pod: Object, node: str, now: str) -> None:
    """Give a pod its node, and the condition that says so; the node that it was nominated for is history."""
    pod["spec"]["nodeName"] = node
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    scheduled = {"type": _SCHEDULED, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = status["conditions"] = status.get("conditions") or []
    for index, condition in enumerate(conditions):
        if condition.get("type") == _SCHEDULED:
            if condition.get("status") == "True":
                scheduled["lastTransitionTime"] = condition.get("lastTransitionTime")
            conditions[index] = scheduled
            return
    conditions.append(scheduled)


def _conflict(name: str, pod: Object, given: Object) -> str:
    """Return why a pod cannot be bound; empty if it can. `given` is the metadata of the binding."""
    metadata, spec = pod["metadata"], pod["spec"]
    uid, version = given.get("uid"), given.get("resourceVersion")
    if uid and uid != metadata["uid"]:
        return f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
    if version and version != metadata["resourceVersion"]:
        actual = f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        return f"Precondition failed: ResourceVersion in precondition: {version}, {actual}"
    if "deletionTimestamp" in metadata:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""
