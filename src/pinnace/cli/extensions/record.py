"""`pinnace record`: write objects and their changes of any cluster to a file, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.flags.shared import AllNamespaces, Context, Kubeconfig, Namespace
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.cli.session import CommandError, converse
from pinnace.client.client import Client
from pinnace.client.mapping import NoSuchKind, kind_from
from pinnace.process.event_loop import stop_signals
from pinnace.testing.recordings import ClusterRecorder


def record(
    kinds: Annotated[
        list[str], typer.Argument(metavar="KIND...", help="Kinds such as pods, deployments.apps or apps/v1/Deployment.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")] = Path("recording.jsonl"),
    seconds: Annotated[
        float | None, typer.Option(help="Stop after this long.", min=0, show_default="until Ctrl-C")
    ] = None,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Record the objects of some kinds, then each change, until Ctrl-C. The values of Secrets are left out.

    A test starts from it with `await cluster.load(path)` and plays the changes with `await cluster.replay(path)`.

    \b
    Examples:
      pinnace record pods deployments websites.example.com -A -o incident.jsonl
      pinnace record apiextensions.k8s.io/v1/CustomResourceDefinition example.com/v1/Website -A --seconds 60
    """

    async def talk(client: Client) -> None:
        types = await ResourceTypes.load(client)
        named = [_kind_name(types, kind) for kind in kinds]
        where = "" if all_namespaces else client.namespace
        with output.open("wb") as file:
            recorder = ClusterRecorder(client, file.write, namespace=where)
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            for number in stop_signals():
                loop.add_signal_handler(number, task.cancel)
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                async with asyncio.timeout(seconds):
                    await recorder.run(named, lambda: print(f"recording to {output}; Ctrl-C stops it", file=sys.stderr))
        print(f"{recorder.count} objects and changes are in {output}", file=sys.stderr)

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


def _kind_name(types: ResourceTypes, word: str) -> str:
    """Return the kind as apps/v1/Deployment. Raise CommandError if the server does not serve it."""
    if "/" not in word:
        kind = types.find(word).kind
        return f"{kind.api_version}/{kind.name}"
    try:
        kind = kind_from(word)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if types.find_kind(kind) is None:
        raise CommandError(str(NoSuchKind(kind)))
    return word
