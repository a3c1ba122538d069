"""Finds the pod and container of a command: by name, or through the object that selects the pod."""

from __future__ import annotations

import sys

from pinnace.cli.kubectl.resource_types import ResourceTypes, parse_resources
from pinnace.cli.session import CommandError
from pinnace.client.client import Client
from pinnace.model import selectors
from pinnace.model.objects import Object, kind_of
from pinnace.schema.golang.text import quote

_DEFAULT = "kubectl.kubernetes.io/default-container"


async def find_object(client: Client, word: str) -> Object:
    """Return the pod of that name, or the object that TYPE/NAME names."""
    if "/" not in word:
        return await client.get("v1/Pod", word)
    types = await ResourceTypes.load(client)
    argument = parse_resources(types, [word])[0]
    return await client.get(argument.served.kind, argument.name)


async def pods_of(client: Client, obj: Object) -> list[Object]:
    """Return the pods that an object selects, running ones first."""
    if obj["kind"] == "Pod":
        return [obj]
    selector = (obj.get("spec") or {}).get("selector")
    if not selector:
        raise CommandError(f"cannot get the pods of a {kind_of(obj).name}: it has no selector")
    is_plain = obj["kind"] in ("Service", "ReplicationController")
    chosen = selectors.from_labels(selector) if is_plain else selectors.from_object(selector)
    pods = await client.list("v1/Pod", namespace=obj["metadata"]["namespace"], labels=str(chosen))
    if not pods:
        raise CommandError(f"no pods found for {obj['kind'].lower()}/{obj['metadata']['name']}")
    return sorted(pods, key=_rank)


async def one_pod(client: Client, word: str) -> Object:
    """Return the named pod, or the first of the pods that the named object selects."""
    return (await pods_of(client, await find_object(client, word)))[0]


def containers_of(pod: Object) -> list[str]:
    spec = pod["spec"]
    groups = ("initContainers", "containers", "ephemeralContainers")
    return [container["name"] for group in groups for container in spec.get(group) or ()]


def container_for(pod: Object, wanted: str, *, says: bool = True) -> str:
    """Return the container to use: the named one, that of the pod's annotation, or else the first, with a notice."""
    known = containers_of(pod)
    if wanted:
        if wanted not in known:
            name = pod["metadata"]["name"]
            raise CommandError(f"container {wanted} is not valid for pod {name} out of: {_format_containers(pod)}")
        return wanted
    preferred: str = (pod["metadata"].get("annotations") or {}).get(_DEFAULT, "")
    if preferred in known:
        return preferred
    first = str(pod["spec"]["containers"][0]["name"])
    if len(known) > 1 and says:
        print(f"Defaulted container {quote(first)} out of: {_format_containers(pod)}", file=sys.stderr, flush=True)
    return first


def _format_containers(pod: Object) -> str:
    """Return the names of all containers, with the type of ephemeral and init containers."""
    groups = (("containers", ""), ("ephemeralContainers", " (ephem)"), ("initContainers", " (init)"))
    return ", ".join(
        f"{container['name']}{what}" for group, what in groups for container in pod["spec"].get(group) or ()
    )


def _rank(pod: Object) -> tuple[bool, bool, str]:
    status = pod.get("status") or {}
    is_ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions") or ()
    )
    return (status.get("phase") != "Running", not is_ready, pod["metadata"].get("creationTimestamp", ""))
