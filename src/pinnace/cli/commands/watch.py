"""`pinnace watch`: show objects, then each change."""

from __future__ import annotations

from typing import Annotated

import typer

from pinnace.cli.commands.get import Output, Wanted, show
from pinnace.cli.flags import AllNamespaces, Context, Fields, Kubeconfig, Labels, Namespace
from pinnace.cli.kubectl.read import Read
from pinnace.cli.kubectl.tables import TableOptions
from pinnace.cli.session import converse
from pinnace.client.client import Client


def watch(
    resources: Annotated[list[str], typer.Argument(metavar="TYPE [NAME] | TYPE/NAME")],
    output: Output = "",
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    selector: Labels = "",
    field_selector: Fields = "",
    only_changes: Annotated[bool, typer.Option("--only-changes", help="Leave out existing objects.")] = False,
    show_labels: Annotated[bool, typer.Option("--show-labels", help="Show all labels in a last column.")] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Leave out the column titles.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Show objects, then each change as it happens, until Ctrl-C. The first column is the type of the change.

    It is `kubectl get --watch --output-watch-events`, but continues after the server ends the connection.

    \b
    Examples:
      pinnace watch pods
      pinnace watch websites -A -o wide
      pinnace watch deploy/web -o yaml              the whole object at each change
      pinnace watch events --only-changes
    """
    wanted = Wanted(
        read=Read(words=tuple(resources), all_namespaces=all_namespaces, labels=selector, fields=field_selector),
        output=output,
        table=TableOptions(wide=output == "wide", headers=not no_headers, labels=show_labels),
        follows=True,
        only_changes=only_changes,
        shows_events=True,
    )

    async def talk(client: Client) -> None:
        await show(client, wanted)

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)
