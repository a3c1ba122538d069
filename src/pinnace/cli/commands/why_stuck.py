"""`pinnace why-stuck`: explain why an object that was deleted is still there."""

from __future__ import annotations

from typing import Annotated

import typer

from pinnace.cli.deletion_blockers import explain_deletion, name_of
from pinnace.cli.flags import Context, Kubeconfig, Namespace
from pinnace.cli.kubectl.read import Read, pages, requests_for
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.cli.session import converse
from pinnace.client.client import Client


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
