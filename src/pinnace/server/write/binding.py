"""Binding: assigns a pod to a node, through pods/binding or the bindings collection."""

from __future__ import annotations

from pinnace.model import errors, field_errors
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Object
from pinnace.model.resources import Registry
from pinnace.server.request.call import Call
from pinnace.server.write.body_decoder import match_namespace, metadata_of
from pinnace.server.write.edits import CopyingEdit, Edit
from pinnace.server.write.pipeline import Pipeline
from pinnace.server.write.revisions import UnexplainedError


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
        await self._pipeline.without_admission().write(call, edit)

    def on_pod(self, call: Call, binding: Object) -> Call:
        """Return the call for a Binding that was posted to the bindings collection, named after its pod."""
        pods = self._registry.find("", "v1", "pods")
        assert pods is not None, "every cluster serves pods"
        name = metadata_of(binding).get("name", "")
        return Call("create", pods, call.namespace, name, "binding", "", call.request, call.user, call.warnings)


def bind_edit(call: Call, binding: Object, now: str) -> Edit:
    """Return the edit that assigns a pod to the node that the binding names."""
    target = binding.get("target") or {}
    errs = []
    if target.get("kind") not in (None, "", "Node"):
        errs.append(field_errors.not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        errs.append(field_errors.required("target.name"))
    if errs:
        told = [str(err) for err in errs]
        raise UnexplainedError(told[0] if len(told) == 1 else f"[{', '.join(told)}]")

    def edit(live: Object | None) -> Object:
        if live is None:
            raise call.not_found()
        if why := _conflict(call.name, live, (binding.get("metadata") or {}).get("uid")):
            raise errors.Conflict(why, group="", plural="pods/binding", name=call.name)
        spec = live["spec"]
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

    return CopyingEdit(edit)


def _conflict(name: str, pod: Object, uid: str | None) -> str:
    """Return why a pod cannot be bound; empty if it can."""
    metadata, spec = pod["metadata"], pod["spec"]
    if uid and uid != metadata["uid"]:
        return f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
    if "deletionTimestamp" in metadata:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""
