"""`pinnace describe`: show the details of objects, with their events."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple

import typer

from pinnace.cli.describe import access, namespaces, nodes, scaling, services, storage, workloads
from pinnace.cli.describe.parts import Description, generic
from pinnace.cli.describe.pods import pod
from pinnace.cli.flags.shared import AllNamespaces, Context, Files, Kubeconfig, Labels, Namespace, Recursive
from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.kubectl.read import Read, ReadRequest, pages, requests_for
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.cli.session import PlainCommandError, converse, raise_all
from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Kind, Object, kind_of

Describe = Callable[[Description, Object, Client], Awaitable[None]]


class _Layout(NamedTuple):
    describe: Describe
    version: str = "v1"
    """The version that it is for; empty for all."""
    with_events: bool = True


def _alone(write: Callable[[Description, Object], None]) -> Describe:
    """Describe a kind by its object alone, without further requests."""

    async def describe_one(page: Description, obj: Object, client: Client) -> None:
        write(page, obj)

    return describe_one


_ROLE = _Layout(_alone(access.role), with_events=False)
_BINDING = _Layout(_alone(access.binding), with_events=False)
_LAYOUTS: dict[tuple[str, str], _Layout] = {
    ("", "Pod"): _Layout(_alone(pod)),
    ("", "ConfigMap"): _Layout(_alone(namespaces.config_map)),
    ("", "Secret"): _Layout(_alone(namespaces.secret), with_events=False),
    ("", "ServiceAccount"): _Layout(_alone(namespaces.service_account)),
    ("", "Service"): _Layout(services.service),
    ("", "Endpoints"): _Layout(_alone(services.endpoints)),
    ("", "Namespace"): _Layout(namespaces.namespace, with_events=False),
    ("", "ResourceQuota"): _Layout(_alone(namespaces.resource_quota), with_events=False),
    ("", "LimitRange"): _Layout(_alone(namespaces.limit_range), with_events=False),
    ("", "ReplicationController"): _Layout(workloads.replication_controller),
    ("", "Node"): _Layout(nodes.node),
    ("", "PersistentVolume"): _Layout(_alone(storage.persistent_volume)),
    ("", "PersistentVolumeClaim"): _Layout(storage.claim),
    ("apps", "Deployment"): _Layout(workloads.deployment),
    ("apps", "ReplicaSet"): _Layout(workloads.replica_set),
    ("apps", "StatefulSet"): _Layout(workloads.stateful_set),
    ("apps", "DaemonSet"): _Layout(workloads.daemon_set),
    ("autoscaling", "HorizontalPodAutoscaler"): _Layout(_alone(scaling.autoscaler), version="v2"),
    ("batch", "Job"): _Layout(_alone(workloads.job)),
    ("batch", "CronJob"): _Layout(_alone(workloads.cron_job)),
    ("certificates.k8s.io", "CertificateSigningRequest"): _Layout(_alone(access.signing_request)),
    ("discovery.k8s.io", "EndpointSlice"): _Layout(_alone(services.endpoint_slice)),
    ("networking.k8s.io", "Ingress"): _Layout(services.ingress),
    ("networking.k8s.io", "IngressClass"): _Layout(_alone(services.ingress_class)),
    ("networking.k8s.io", "IPAddress"): _Layout(_alone(services.address), version=""),
    ("networking.k8s.io", "NetworkPolicy"): _Layout(_alone(access.network_policy), with_events=False),
    ("networking.k8s.io", "ServiceCIDR"): _Layout(_alone(services.service_range), version=""),
    ("policy", "PodDisruptionBudget"): _Layout(_alone(scaling.disruption_budget)),
    ("rbac.authorization.k8s.io", "Role"): _ROLE,
    ("rbac.authorization.k8s.io", "ClusterRole"): _ROLE,
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
    ("scheduling.k8s.io", "PriorityClass"): _Layout(_alone(scaling.priority_class)),
    ("storage.k8s.io", "CSINode"): _Layout(_alone(storage.node_drivers)),
    ("storage.k8s.io", "StorageClass"): _Layout(_alone(storage.storage_class)),
    ("storage.k8s.io", "VolumeAttributesClass"): _Layout(_alone(storage.attributes_class), version=""),
}
"""The kinds with a layout of their own."""


def describe(
    resources: Annotated[
        list[str] | None, typer.Argument(metavar="TYPE [NAME or its beginning] | TYPE/NAME...")
    ] = None,
    filename: Files = None,
    recursive: Recursive = False,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    selector: Labels = "",
    show_events: Annotated[
        bool | None,
        typer.Option(
            "--show-events/--no-show-events",
            help="Show events.",
            show_default="for one object, but not for several",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Show the details of objects, with their events. The values of secrets are not shown.

    \b
    Examples:
      pinnace describe pod web              one pod
      pinnace describe pods -l app=web      those with a label
      pinnace describe deploy/web svc/web
      pinnace describe website blog         custom kinds, field by field
      pinnace describe pod we               all pods whose name begins with "we"
      pinnace describe -f website.yaml
    """

    async def talk(client: Client) -> None:
        documents = tuple(read_documents(filename, recursive=recursive)) if filename else ()
        words = tuple(resources or ())
        if not words and not documents:
            raise PlainCommandError(
                "error: You must specify the type of resource to describe. pinnace describe --help shows how."
            )
        read = Read(words=words, documents=documents, all_namespaces=all_namespaces, labels=selector)
        await _describe(client, read, show_events=show_events)

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def _describe(client: Client, read: Read, *, show_events: bool | None) -> None:
    types = await ResourceTypes.load(client)
    requests = requests_for(types, read, client.namespace)
    failures: list[Exception] = []
    objects: list[Object] = []
    prefixed: list[Object] = []
    for request in requests:
        try:
            objects += [obj async for page in pages(client, request) for obj in page]
        except errors.NotFound as error:
            prefixed = await _with_prefix(client, request) if len(requests) == 1 and len(read.words) == 2 else []
            failures += [] if prefixed else [error]
        except errors.ApiError as error:
            failures.append(error)
    is_one = len(objects) == 1 and not failures
    with_events = is_one if show_events is None else show_events
    for place, obj in enumerate(objects):
        sys.stdout.write(("\n\n" if place else "") + await _describe_one(client, obj, with_events=with_events))
    for obj in prefixed:
        print(await _describe_one(client, obj, with_events=bool(show_events)))
    raise_all(failures)
    if not objects and not prefixed:
        where = f" in {client.namespace} namespace." if requests[0].namespace else ""
        print(f"No resources found{where}", file=sys.stderr)


async def _with_prefix(client: Client, request: ReadRequest) -> list[Object]:
    every = ReadRequest(served=request.served, namespace=request.namespace)
    return [
        obj async for page in pages(client, every) for obj in page if obj["metadata"]["name"].startswith(request.name)
    ]


async def _describe_one(client: Client, obj: Object, *, with_events: bool) -> str:
    events = await _events(client, obj) if with_events else None
    kind = kind_of(obj)
    layout = _LAYOUTS.get((kind.group, kind.name))
    if layout is None:
        return generic(obj, events)
    if layout.version and kind.version != layout.version:
        metadata, known = obj["metadata"], Kind(kind.group, layout.version, kind.name)
        obj = await client.get(known, metadata["name"], namespace=metadata.get("namespace", ""))
    page = Description()
    await layout.describe(page, obj, client)
    if layout.with_events:
        page.events(events)
    return str(page)


async def _events(client: Client, obj: Object) -> list[Object]:
    metadata = obj["metadata"]
    chosen = {"name": metadata["name"], "namespace": metadata.get("namespace", ""), "kind": obj["kind"]}
    about = ",".join(f"involvedObject.{key}={value}" for key, value in chosen.items())
    uids = [metadata.get("uid", "")]
    if obj["kind"] == "Node":
        uids.append(metadata["name"])  # Kubelets use the node's name as the uid in their events.
    events: list[Object] = []
    for uid in uids:
        try:
            fields = f"{about},involvedObject.uid={uid}"
            events += await client.list("v1/Event", namespace=chosen["namespace"], fields=fields)
        except errors.ApiError:
            continue  # A user without access to events still sees the object.
    return events
