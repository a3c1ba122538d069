"""`pinnace describe`: show the details of objects, with their events."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from pinnace.cli.describe import (
    access,
    certificates,
    data,
    jobs,
    limits,
    network_policies,
    nodes,
    scaling,
    services,
    storage,
    workloads,
)
from pinnace.cli.describe.parts import Description, generic
from pinnace.cli.describe.pods import pod
from pinnace.cli.flags import AllNamespaces, Context, Files, Kubeconfig, Labels, Namespace, Recursive
from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.kubectl.read import Read, ReadRequest, pages, requests_for
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.cli.session import PlainCommandError, converse, raise_all
from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Kind, Object, kind_of

Describe = Callable[[Client, Object, list[Object] | None], Awaitable[str]]


def _alone(write: Callable[[Description, Object], None], *, with_events: bool = True) -> Describe:
    """Describe a kind by its object alone, without further requests."""

    async def describe_one(client: Client, obj: Object, events: list[Object] | None) -> str:
        page = Description()
        write(page, obj)
        if with_events:
            page.events(events)
        return str(page)

    return describe_one


_ROLE = _alone(access.role, with_events=False)
_BINDING = _alone(access.binding, with_events=False)
_SPECIAL: dict[tuple[str, str], tuple[str, Describe]] = {
    ("", "Pod"): ("v1", _alone(pod)),
    ("", "ConfigMap"): ("v1", _alone(data.config_map)),
    ("", "Secret"): ("v1", _alone(data.secret, with_events=False)),
    ("", "ServiceAccount"): ("v1", _alone(data.service_account)),
    ("", "Service"): ("v1", services.service),
    ("", "Endpoints"): ("v1", _alone(services.endpoints)),
    ("", "Namespace"): ("v1", limits.namespace),
    ("", "ResourceQuota"): ("v1", _alone(limits.resource_quota, with_events=False)),
    ("", "LimitRange"): ("v1", _alone(limits.limit_range, with_events=False)),
    ("", "ReplicationController"): ("v1", workloads.replication_controller),
    ("", "Node"): ("v1", nodes.node),
    ("", "PersistentVolume"): ("v1", _alone(storage.persistent_volume)),
    ("", "PersistentVolumeClaim"): ("v1", storage.claim),
    ("apps", "Deployment"): ("v1", workloads.deployment),
    ("apps", "ReplicaSet"): ("v1", workloads.replica_set),
    ("apps", "StatefulSet"): ("v1", workloads.stateful_set),
    ("apps", "DaemonSet"): ("v1", workloads.daemon_set),
    ("autoscaling", "HorizontalPodAutoscaler"): ("v2", _alone(scaling.autoscaler)),
    ("batch", "Job"): ("v1", _alone(jobs.job)),
    ("batch", "CronJob"): ("v1", _alone(jobs.cron_job)),
    ("certificates.k8s.io", "CertificateSigningRequest"): ("v1", _alone(certificates.signing_request)),
    ("discovery.k8s.io", "EndpointSlice"): ("v1", _alone(services.endpoint_slice)),
    ("networking.k8s.io", "Ingress"): ("v1", services.ingress),
    ("networking.k8s.io", "IngressClass"): ("v1", _alone(services.ingress_class)),
    ("networking.k8s.io", "IPAddress"): ("", _alone(services.address)),
    ("networking.k8s.io", "NetworkPolicy"): ("v1", _alone(network_policies.network_policy, with_events=False)),
    ("networking.k8s.io", "ServiceCIDR"): ("", _alone(services.service_range)),
    ("policy", "PodDisruptionBudget"): ("v1", _alone(scaling.disruption_budget)),
    ("rbac.authorization.k8s.io", "Role"): ("v1", _ROLE),
    ("rbac.authorization.k8s.io", "ClusterRole"): ("v1", _ROLE),
    ("rbac.authorization.k8s.io", "RoleBinding"): ("v1", _BINDING),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ("v1", _BINDING),
    ("scheduling.k8s.io", "PriorityClass"): ("v1", _alone(scaling.priority_class)),
    ("storage.k8s.io", "CSINode"): ("v1", _alone(storage.node_drivers)),
    ("storage.k8s.io", "StorageClass"): ("v1", _alone(storage.storage_class)),
    ("storage.k8s.io", "VolumeAttributesClass"): ("", _alone(storage.attributes_class)),
}
"""The kinds with a layout of their own, and the version that it is for; empty for all versions."""


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
    found: list[Object] = []
    prefixed: list[Object] = []
    for request in requests:
        try:
            found += [obj async for page in pages(client, request) for obj in page]
        except errors.NotFound as error:
            prefixed = await _with_prefix(client, request) if len(requests) == 1 and len(read.words) == 2 else []
            failures += [] if prefixed else [error]
        except errors.ApiError as error:
            failures.append(error)
    is_one = len(found) == 1 and not failures
    with_events = is_one if show_events is None else show_events
    for place, obj in enumerate(found):
        sys.stdout.write(("\n\n" if place else "") + await _describe_one(client, obj, with_events=with_events))
    for obj in prefixed:
        print(await _describe_one(client, obj, with_events=bool(show_events)))
    raise_all(failures)
    if not found and not prefixed:
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
    if (kind.group, kind.name) not in _SPECIAL:
        return generic(obj, events)
    version, special = _SPECIAL[kind.group, kind.name]
    if version and kind.version != version:
        metadata, known = obj["metadata"], Kind(kind.group, version, kind.name)
        obj = await client.get(known, metadata["name"], namespace=metadata.get("namespace", ""))
    return await special(client, obj, events)


async def _events(client: Client, obj: Object) -> list[Object]:
    metadata = obj["metadata"]
    chosen = {"name": metadata["name"], "namespace": metadata.get("namespace", ""), "kind": obj["kind"]}
    about = ",".join(f"involvedObject.{key}={value}" for key, value in chosen.items())
    uids = [metadata.get("uid", "")]
    if obj["kind"] == "Node":
        uids.append(metadata["name"])  # Kubelets use the node's name as the uid in their events.
    found: list[Object] = []
    for uid in uids:
        try:
            fields = f"{about},involvedObject.uid={uid}"
            found += await client.list("v1/Event", namespace=chosen["namespace"], fields=fields)
        except errors.ApiError:
            continue  # A user without access to events still sees the object.
    return found
