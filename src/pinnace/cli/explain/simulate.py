"""`pinnace simulate`: where the pods in files would run, decided on a copy of the cluster."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, cast

import typer

from pinnace.cli.explain.scheduler_profiles import find_profiles
from pinnace.cli.flags.shared import Context, Files, Kubeconfig, Namespace, Recursive
from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.session import CommandError, converse, failing_with
from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod
from pinnace.scheduler.what_if.copies import copy_cluster
from pinnace.scheduler.what_if.simulation import NoProfile, simulate

WAITING = 1
_MOST_REPLICAS = 100_000
_SIMULATED = ("Pod", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job")


def simulate_pods(
    filename: Files = None,
    recursive: Recursive = False,
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            "--scheduler", metavar="FILE", help="A file with a custom scheduler; may be repeated.", show_default=False
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A KubeSchedulerConfiguration to use.", show_default=False)
    ] = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Print where the pods in files would run, without writing anything.

    Deployments, ReplicaSets, StatefulSets and Jobs count with all their pods; other kinds in the files are left out.
    The server completes each pod as it would a new one (dry run); the decisions are made here, one after the other, on
    a copy of the cluster. The exit code is 1 if a pod would have to wait.

    \b
    Examples:
      pinnace simulate -f pods.yaml
      pinnace simulate -f deployment.yaml -n shop --scheduler my_scheduler.py
    """
    if not filename:
        failing_with(1, "error: must specify -f, with the file of the pods to simulate")

    async def talk(client: Client) -> int:
        profiles = find_profiles(config, scheduler or ())
        objects = [document.object for document in read_documents(filename or (), recursive=recursive)]
        simulated = _simulated(objects)
        pods = [pod for obj in simulated for pod in await _complete(client, obj)]
        waiting = 0
        state = await copy_cluster(client)
        try:
            for outcome in simulate(cast("list[Pod]", pods), state, profiles):
                evicts = f" (evicts {', '.join(outcome.evicted)})" if outcome.evicted else ""
                print(f"{outcome.pod}: {outcome.node or outcome.message}{evicts}")
                waiting += not outcome.node
        except NoProfile as error:
            raise CommandError(str(error)) from error
        print(f"{len(pods) - waiting} of {len(pods)} pods would run")
        return WAITING if waiting else 0

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


def _simulated(objects: list[Object]) -> list[Object]:
    """Return the objects that have pods, and report the others. Raise CommandError if there are none."""
    simulated, others = [], []
    for obj in objects:
        if obj.get("kind") in _SIMULATED:
            simulated.append(obj)
        else:
            others.append(f"{obj.get('kind')}/{(obj.get('metadata') or {}).get('name')}")
    if not simulated:
        raise CommandError(f"found {', '.join(others) or 'no object'}; expected one of {', '.join(_SIMULATED)}")
    if others:
        print(f"left out: {', '.join(others)}", file=sys.stderr)
    return simulated


async def _complete(client: Client, obj: Object) -> list[Object]:
    """Return the pods of an object as the server would store them: with defaults, priority and admission."""
    template, count = pods_of(obj)
    template["metadata"].setdefault("namespace", client.namespace)
    stored: Object = await client.create(template, namespace=template["metadata"]["namespace"], dry_run=True)
    return list(_copies(stored, count))


def pods_of(obj: Object) -> tuple[Object, int]:
    """Return one pod of an object, and how many of them there are. Raise CommandError for a bad number."""
    kind, metadata = obj["kind"], obj.get("metadata") or {}
    if kind == "Pod":
        return copy.deepcopy(obj), 1
    spec = obj.get("spec") or {}
    template = copy.deepcopy(spec.get("template") or {})
    count = spec.get("parallelism", 1) if kind == "Job" else spec.get("replicas", 1)
    if not isinstance(count, int) or not 0 <= count <= _MOST_REPLICAS:
        raise CommandError(f"{kind} {metadata.get('name')}: expected 0 to {_MOST_REPLICAS} replicas, found {count}")
    own = {**(template.get("metadata") or {}), "name": metadata.get("name", kind.lower())}
    if metadata.get("namespace"):
        own["namespace"] = metadata["namespace"]
    if kind == "Job":
        template["spec"].setdefault("restartPolicy", "Never")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": template.get("spec") or {}}, count


def _copies(pod: Object, count: int) -> Iterator[Object]:
    if count == 1:
        yield pod
        return
    for index in range(count):
        name = f"{pod['metadata']['name']}-{index}"
        yield {**pod, "metadata": {**pod["metadata"], "name": name, "uid": f"{pod['metadata'].get('uid', '')}-{index}"}}
