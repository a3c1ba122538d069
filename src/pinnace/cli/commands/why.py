"""`pinnace why`: what made an operator look at an object, and what came of it."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, NoReturn

import orjson
import typer

from pinnace.cli.flags import Context, Kubeconfig, Namespace
from pinnace.cli.kubectl.formats import as_json
from pinnace.cli.kubectl.pods import container_for, one_pod
from pinnace.cli.session import converse, failing_with
from pinnace.client.client import Client
from pinnace.client.kubeconfig import KubeconfigError, find_access
from pinnace.kinds.cells import format_duration
from pinnace.model.objects import Object
from pinnace.sdk.operator.why_answers import socket_directory

_SHOWN = 10


def why(
    words: Annotated[list[str] | None, typer.Argument(metavar="[KIND/NAME | KIND NAME]", show_default=False)] = None,
    namespace: Namespace = "",
    inside: Annotated[
        str,
        typer.Option("--in", help="Ask the operator in this pod: POD or deploy/NAME, in its namespace after a colon."),
    ] = "",
    operator: Annotated[str, typer.Option(help="Ask only the operator of this name.", show_default=False)] = "",
    output: Annotated[str, typer.Option("-o", "--output", help="json: all that is known.", show_default=False)] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Say what made an operator look at an object: whose change, which fields, by whom; how long it waited and took,
    what came of it, and when it looks again.

    Operators that `pinnace run` runs on this machine are found by themselves. One that runs in the cluster is asked
    in its pod, with --in. Without an object, the last that were looked at are shown.

    \b
    Examples:
      pinnace why                               what has been going on?
      pinnace why website/blog                  why was this one reconciled?
      pinnace why websites blog -n web -o json
      pinnace why website/blog --in deploy/website-controller
      pinnace why website/blog --in operators:deploy/website-controller
    """
    if output not in ("", "json"):
        failing_with(1, f"error: -o {output}: only json is known")
    kind, name = _object(words or [])
    place = namespace or _namespace(kubeconfig, context)
    if inside:
        options = [*(["--operator", operator] if operator else []), *(["-o", output] if output else [])]
        _ask_inside(inside, [*(words or []), "-n", place, *options], namespace, kubeconfig, context)
    answers = asyncio.run(_ask_all({"namespace": place, "name": name}))
    if operator:
        answers = [answer for answer in answers if answer["operator"] == operator]
    if not answers:
        failing_with(
            1,
            "error: no operator answers on this machine; start one with pinnace run, or ask one in the cluster: "
            "--in deploy/NAME",
        )
    chosen = [_only(answer, kind) for answer in answers]
    if kind and not any(answer["controllers"] for answer in chosen):
        known = sorted({one["kind"] for answer in answers for one in answer["controllers"] if one["kind"]})
        failing_with(1, f"error: no operator here reconciles {kind}; they reconcile: {', '.join(known) or 'nothing'}")
    if output == "json":
        sys.stdout.write(as_json(chosen))
        return
    lines = [line for answer in chosen for line in _told(answer, place, name)]
    print("\n".join(lines))


def _object(words: list[str]) -> tuple[str, str]:
    if not words:
        return "", ""
    if len(words) == 1 and "/" in words[0]:
        kind, _, name = words[0].partition("/")
        return kind.lower(), name
    if len(words) == 2 and "/" not in "".join(words):
        return words[0].lower(), words[1]
    failing_with(1, "error: name one object, as website/blog or website blog")


def _namespace(kubeconfig: Path | None, context: str) -> str:
    try:
        return find_access(path=kubeconfig, context=context).namespace
    except KubeconfigError:
        return "default"


def _ask_inside(inside: str, question: list[str], namespace: str, kubeconfig: Path | None, context: str) -> NoReturn:
    """Ask in the operator's pod. Where that is says nothing of where the object is: `question` says it."""
    where, _, target = inside.rpartition(":")
    command = ["pinnace", "why", *question]

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


async def _ask_all(question: Object) -> list[Object]:
    """The answers of all operators of this user on this machine."""
    place = socket_directory()
    found = sorted(place.glob("*.sock")) if place.is_dir() else []
    answers = [await _ask(path, question) for path in found]
    return [answer for answer in answers if answer is not None]


async def _ask(path: Path, question: Object) -> Object | None:
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)  # Its operator was killed.
        return None
    except OSError:
        return None
    writer.write(orjson.dumps(question) + b"\n")
    answer = await reader.read()
    writer.close()
    with suppress(orjson.JSONDecodeError):
        told: Object = orjson.loads(answer)
        return told
    return None


def _only(answer: Object, kind: str) -> Object:
    word, _, group = kind.partition(".")
    controllers = [
        one for one in answer["controllers"] if not kind or (word in one["words"] and group in ("", one["group"]))
    ]
    return {**answer, "controllers": controllers}


def _told(answer: Object, namespace: str, name: str) -> Iterator[str]:
    for controller in answer["controllers"]:
        about = (
            f"{controller['kind']} {namespace}/{name}"
            if name
            else f"{controller['kind']}, the last that were looked at"
        )
        yield f"{answer['operator']} ({controller['controller']}, process {answer['process']}): {about}"
        if not controller["runs"]:
            yield "  not looked at yet" if name else "  nothing was looked at yet"
        for equal_ignoring_empty in list(_alike(controller["runs"]))[:_SHOWN]:
            yield from _told_run(equal_ignoring_empty[0], with_name=not name)
            if len(equal_ignoring_empty) > 1:
                since = _ago(equal_ignoring_empty[-1])
                yield f"    and {len(equal_ignoring_empty) - 1} times before, with the same end, since {since} ago"
        if name and controller["next"]:
            tries = f" after {controller['failures']} failures" if controller["failures"] else ""
            yield f"  looks again in {_length(controller['next'])}{tries}"
        if controller["waiting"]:
            yield f"  {controller['waiting']} objects wait to be looked at"


def _alike(runs: list[Object]) -> Iterator[list[Object]]:
    """Runs that say the same, such as one failure after the other, together."""

    def says(run: Object) -> object:
        is_again = [reason["what"] for reason in run["reasons"]] in (["retry"], ["requeue"], ["resync"])
        return (run["namespace"], run["name"], run["outcome"], run["error"]) if is_again else run["began"]

    for _, equal_ignoring_empty in groupby(runs, key=says):
        yield list(equal_ignoring_empty)


def _ago(run: Object) -> str:
    return format_duration((datetime.now(UTC) - datetime.fromisoformat(run["began"])).total_seconds())


def _told_run(run: Object, *, with_name: bool) -> Iterator[str]:
    which = f" {run['namespace']}/{run['name']}".replace(" /", " ") if with_name else ""
    took = f"waited {_length(run['waited'])}, took {_length(run['seconds'])}"
    again = f", again in {_length(run['again'])}" if run["again"] else ""
    yield f"  {_ago(run)} ago{which}: {run['outcome']} ({took}{again})"
    if run["error"]:
        yield f"    {run['error']}"
    for reason in run["reasons"]:
        yield f"    because {_reason(reason)}"


def _reason(reason: Object) -> str:
    plain = {"retry": "it had failed before", "requeue": "it had asked to be", "resync": "all are, from time to time"}
    if not reason["kind"]:
        return plain.get(reason["what"]) or str(reason["what"])
    text = f"{reason['kind']} {reason['object']} was {reason['what']}"
    if reason["managers"]:
        text += f" by {', '.join(reason['managers'])}"
    return text + (f": {', '.join(reason['fields'])}" if reason["fields"] else "")


def _length(seconds: float) -> str:
    return (
        f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 120 else format_duration(seconds)
    )
