"""`pinnace why`: explain why an operator reconciled an object, with the result."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pinnace.cli.flags.shared import Context, Kubeconfig, Namespace
from pinnace.cli.kubectl.pods import container_for, one_pod
from pinnace.cli.session import converse, failing_with
from pinnace.client.client import Client
from pinnace.client.kubeconfig import KubeconfigError, find_access
from pinnace.sdk.command.why import NoAnswer, check_question, explain


def why(
    words: Annotated[list[str] | None, typer.Argument(metavar="[KIND/NAME | KIND NAME]", show_default=False)] = None,
    namespace: Namespace = "",
    inside: Annotated[
        str,
        typer.Option("--in", help="Ask the operator in this pod: POD, deploy/NAME or NAMESPACE:deploy/NAME."),
    ] = "",
    operator: Annotated[str, typer.Option(help="Ask only the operator with this name.", show_default=False)] = "",
    output: Annotated[
        str, typer.Option("-o", "--output", help="json: print everything that is known.", show_default=False)
    ] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Explain why an operator reconciled an object: the change, its fields and field managers, the time it took, the
    result, and the time of the next reconcile.

    Operators that `pinnace run` runs on this machine are found automatically. Use --in for an operator that runs in
    the cluster. Without an object, the last reconciled objects are shown.

    \b
    Examples:
      pinnace why                               the last reconciles
      pinnace why website/blog                  the reconciles of one object
      pinnace why websites blog -n web -o json
      pinnace why website/blog --in deploy/website-controller
      pinnace why website/blog --in operators:deploy/website-controller
    """
    place = namespace or _namespace(kubeconfig, context)
    question = list(words or [])
    try:
        if not inside:
            print(explain(question, namespace=place, operator=operator, output=output), end="")
            return
        check_question(question, output)
    except NoAnswer as error:
        failing_with(1, f"error: {error}")
    options = [*(["--operator", operator] if operator else []), *(["-o", output] if output else [])]
    _ask_inside(inside, [*question, "-n", place, *options], namespace, kubeconfig, context)


def _namespace(kubeconfig: Path | None, context: str) -> str:
    try:
        return find_access(path=kubeconfig, context=context).namespace
    except KubeconfigError:
        return "default"


def _ask_inside(inside: str, question: list[str], namespace: str, kubeconfig: Path | None, context: str) -> NoReturn:
    """Run `pinnace-operator why` in the operator's pod: its image may have pinnace-sdk alone."""
    where, _, target = inside.rpartition(":")
    command = ["pinnace-operator", "why", *question]

    async def talk(client: Client) -> int:
        pod = await one_pod(client, target)
        metadata, container = pod["metadata"], container_for(pod, "", says=False)
        done = await client.exec(metadata["name"], command, namespace=metadata["namespace"], container=container)
        sys.stdout.write(done.stdout.decode("utf-8", "replace"))
        sys.stderr.write(done.stderr.decode("utf-8", "replace"))
        if done.code in (126, 127):
            print(f"error: {shlex.join(command)} cannot be run in {metadata['name']}", file=sys.stderr)
        return done.code

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=where or namespace)
