"""`pinnace why-stuck`: explain why an object that was deleted is still there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import typer

from pinnace.cli.flags.shared import Context, Kubeconfig, Namespace
from pinnace.cli.kubectl.read import Read, pages, requests_for
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.cli.session import converse
from pinnace.client.client import Client
from pinnace.client.mapping import ServedKind
from pinnace.model import errors
from pinnace.model.objects import Object, kind_of
from pinnace.process.clock import to_rfc3339


def why_stuck(
    words: Annotated[list[str], typer.Argument(metavar="TYPE NAME | TYPE/NAME...")],
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Explain why objects that were deleted are still there: finalizers, dependents, remaining objects, their node.

    The exit code is 1 if an object is being deleted. Works with any cluster.

    \b
    Examples:
      pinnace why-stuck namespace shop              the objects that remain in it, and their finalizers
      pinnace why-stuck website/blog                who set its finalizers, and the command that removes one
      pinnace why-stuck pvc data -n shop            the pods that use it
      pinnace why-stuck crd websites.example.com    the objects of the kind
    """

    async def talk(client: Client) -> int:
        types = await ResourceTypes.load(client)
        stuck = 0
        for request in requests_for(types, Read(words=tuple(words)), client.namespace):
            async for page in pages(client, request):
                for obj in page:
                    since = obj["metadata"].get("deletionTimestamp")
                    if not since:
                        print(f"{name_of(types, obj)} is not being deleted")
                        continue
                    stuck = 1
                    print(f"{name_of(types, obj)} is being deleted, since {since}:")
                    async for line in explain_deletion(client, types, obj):
                        print(line)
        return stuck

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


_FOREGROUND = "foregroundDeletion"
_CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
_DEFINITION_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_KNOWN = {
    _FOREGROUND: "the garbage collector first deletes the objects that it owns with blockOwnerDeletion",
    "orphan": "the garbage collector first removes it from the ownerReferences of the objects that it owns",
    _CLAIM_PROTECTION: "it stays while a pod uses it",
    "kubernetes.io/pv-protection": "it stays while a claim is bound to it",
    "batch.kubernetes.io/job-tracking": "the Job's controller counts the pod first; check that its Job exists",
    "service.kubernetes.io/load-balancer-cleanup": "the cloud's controller first removes its load balancer",
    _DEFINITION_CLEANUP: "all objects of the kind are deleted first",
}
_MOST = 10
_OLD_GROUP = "extensions"
"""Its kinds are listed in other groups too, without warnings."""
_UNIMPORTANT = ("Event", "Endpoints", "ComponentStatus")


async def explain_deletion(client: Client, types: ResourceTypes, obj: Object) -> AsyncIterator[str]:
    """Yield the lines that say why an object with a deletionTimestamp is still there."""
    has_blocker = False
    async for line in _blockers(client, types, obj):
        has_blocker = True
        yield f"  {line}"
    if not has_blocker:
        yield "  nothing holds it: it will be gone in a moment"


async def _blockers(client: Client, types: ResourceTypes, obj: Object) -> AsyncIterator[str]:
    metadata = obj["metadata"]
    async for line in _set_aside(client, obj):
        yield line
    for place, finalizer in enumerate(metadata.get("finalizers") or ()):
        yield f"finalizer {finalizer}{_origin(obj, finalizer)}"
        if finalizer in _KNOWN:
            yield f"  {_KNOWN[finalizer]}"
            async for line in _held_by(client, types, obj, finalizer):
                yield f"  {line}"
        else:
            yield "  its controller removes it after its clean-up: is that controller running? See its log."
            yield "  If the controller is gone for good, remove the finalizer; the clean-up is then not done:"
            yield f"    {_removal(types, obj, place)}"
    if obj["kind"] == "Namespace":
        async for line in _within_namespace(client, types, obj):
            yield line
    elif obj["kind"] == "Pod":
        async for line in _on_node(client, obj):
            yield line


def _origin(obj: Object, finalizer: str) -> str:
    """Return the field manager that set a finalizer, as far as managedFields has it."""
    for entry in obj["metadata"].get("managedFields") or ():
        fields: Any = entry.get("fieldsV1") or {}
        owned = (fields.get("f:metadata") or {}).get("f:finalizers") or {}
        if f'v:"{finalizer}"' in owned:
            return f", set by {entry.get('manager')} at {entry.get('time')}"
    return ""


def _removal(types: ResourceTypes, obj: Object, place: int) -> str:
    namespace = obj["metadata"].get("namespace")
    where = f" -n {namespace}" if namespace else ""
    patch = f'[{{"op":"remove","path":"/metadata/finalizers/{place}"}}]'
    return f"kubectl patch {name_of(types, obj)}{where} --type=json -p '{patch}'"


def name_of(types: ResourceTypes, obj: Object) -> str:
    """Return TYPE/NAME, as kubectl takes it."""
    served = types.find_kind(kind_of(obj))
    word = served.singular or served.plural if served is not None else obj["kind"].lower()
    group = kind_of(obj).group
    return f"{word}{f'.{group}' if '.' in group else ''}/{obj['metadata']['name']}"


async def _held_by(client: Client, types: ResourceTypes, obj: Object, finalizer: str) -> AsyncIterator[str]:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    if finalizer == _FOREGROUND:
        every = await _list_all(client, types, namespace)
        owned = [candidate for candidate in every if _blocks(candidate, metadata["uid"])]
    elif finalizer == _CLAIM_PROTECTION:
        pods = await client.list("v1/Pod", namespace=namespace)
        owned = [pod for pod in pods if metadata["name"] in _claims_of(pod)]
    elif finalizer == _DEFINITION_CLEANUP:
        owned = await _instances(client, types, obj)
    else:
        return
    for line in _remaining(types, owned):
        yield line


def _blocks(obj: Object, owner: str) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(reference.get("uid") == owner and reference.get("blockOwnerDeletion") for reference in references)


def _claims_of(pod: Object) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if volume.get("persistentVolumeClaim")]


async def _instances(client: Client, types: ResourceTypes, definition: Object) -> list[Object]:
    spec = definition["spec"]
    served = types.find(f"{spec['names']['plural']}.{spec['group']}")
    return [_with_kind(instance, served) for instance in await client.list(served.kind, metadata_only=True)]


async def _set_aside(client: Client, obj: Object) -> AsyncIterator[str]:
    """Yield why a controller does not reconcile the object for now, if it has held the event loop."""
    fields = f"involvedObject.uid={obj['metadata']['uid']},reason=SetAside"
    namespace = obj["metadata"].get("namespace") or "default"
    try:
        events = await client.list("v1/Event", namespace=namespace, fields=fields)
    except errors.Forbidden:
        return
    for event in events:
        yield f"set aside at {event.get('lastTimestamp') or event['metadata']['creationTimestamp']}: {event['message']}"


async def _within_namespace(client: Client, types: ResourceTypes, namespace: Object) -> AsyncIterator[str]:
    for condition in (namespace.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("message"):
            yield str(condition["message"])
        if condition.get("type") == "NamespaceDeletionDiscoveryFailure" and condition.get("status") == "True":
            yield "  find the API whose server is gone with kubectl get apiservices, and delete it or start its server"
    for line in _remaining(types, await _list_all(client, types, namespace["metadata"]["name"])):
        yield line


def _remaining(types: ResourceTypes, objects: Sequence[Object]) -> list[str]:
    # Those that something holds come first.
    held = sorted(objects, key=lambda obj: not obj["metadata"].get("finalizers"))
    lines = []
    for obj in held[:_MOST]:
        finalizers = ", ".join(obj["metadata"].get("finalizers") or ())
        why = f" has the finalizers {finalizers}" if finalizers else " is still there"
        namespace = obj["metadata"].get("namespace")
        command = f"pinnace why-stuck {name_of(types, obj)}" + (f" -n {namespace}" if namespace else "")
        lines.append(f"{name_of(types, obj)}{why}" + (f": {command}" if finalizers else ""))
    if len(held) > _MOST:
        lines.append(f"and {len(held) - _MOST} more")
    return lines


async def _list_all(client: Client, types: ResourceTypes, namespace: str) -> list[Object]:
    """Return the metadata of every object in a namespace; of the whole cluster if it is empty."""
    by_uid: dict[str, Object] = {}
    for served in types.all_listable(namespaced=bool(namespace)):
        if served.kind.group == _OLD_GROUP or served.kind.name in _UNIMPORTANT:
            continue
        try:
            listed = await client.list(served.kind, namespace=namespace, metadata_only=True)
        except errors.ApiError:
            continue  # The server of an API may be gone, or the user may not list it.
        for obj in listed:
            by_uid.setdefault(obj["metadata"]["uid"], _with_kind(obj, served))
    return list(by_uid.values())


def _with_kind(obj: Object, served: ServedKind) -> Object:
    return {**obj, "apiVersion": served.kind.api_version, "kind": served.kind.name}


async def _on_node(client: Client, pod: Object) -> AsyncIterator[str]:
    node = pod["spec"].get("nodeName", "")
    if not node:
        return
    force = f"kubectl delete pod {pod['metadata']['name']} -n {pod['metadata']['namespace']} --grace-period=0 --force"
    stored = await client.get_or_none("v1/Node", node)
    if stored is None:
        yield f"its node {node} does not exist, so nothing confirms the end of its containers: {force}"
        return
    conditions = (stored.get("status") or {}).get("conditions") or ()
    ready: Object = next((condition for condition in conditions if condition.get("type") == "Ready"), {})
    until = pod["metadata"]["deletionTimestamp"]
    if ready.get("status") == "True" and to_rfc3339(client.clock.now()) < until:
        yield f"node {node} stops its containers, at the latest at {until}"
    elif ready.get("status") != "True":
        reason = ready.get("reason", "no status")
        yield f"its node {node} is not ready ({reason}), so nothing confirms the end of its containers: {force}"
