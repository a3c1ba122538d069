"""`pinnace why`: explain why an operator reconciled an object, with the result."""

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
from pinnace.sdk.operator.why_answers import short_name, socket_directory

_SHOWN = 10


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
    lines = [line for answer in chosen for line in _format_answer(answer, place, name)]
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
    """Run `pinnace why` in the operator's pod. `question` names the object and its namespace."""
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
    """Return the answers of all operators of this user on this machine."""
    place = socket_directory()
    found = sorted(place.glob("*.sock")) if place.is_dir() else []
    answers = [await _ask(path, question) for path in found]
    return [answer for answer in answers if answer is not None]


async def _ask(path: Path, question: Object) -> Object | None:
    try:
        with short_name(path) as name:
            reader, writer = await asyncio.open_unix_connection(name)
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)  # Its operator was killed.
        return None
    except OSError:
        return None
    writer.write(orjson.dumps(question) + b"\n")
    answer = await reader.read()
    writer.close()
    with suppress(orjson.JSONDecodeError):
        decoded: Object = orjson.loads(answer)
        return decoded
    return None


def _only(answer: Object, kind: str) -> Object:
    word, _, group = kind.partition(".")
    controllers = [
        one for one in answer["controllers"] if not kind or (word in one["words"] and group in ("", one["group"]))
    ]
    return {**answer, "controllers": controllers}


def _format_answer(answer: Object, namespace: str, name: str) -> Iterator[str]:
    if answer["standby"]:
        leader = f": {answer['leader']} holds the lease" if answer["leader"] else ", and the lease is free"
        yield f"{answer['operator']} (process {answer['process']}) is on standby and reconciles nothing{leader}"
        return
    for controller in answer["controllers"]:
        about = f"{controller['kind']} {namespace}/{name}" if name else f"{controller['kind']}, the last reconciles"
        yield f"{answer['operator']} ({controller['controller']}, process {answer['process']}): {about}"
        if not controller["runs"]:
            yield "  no reconcile is remembered: does the object exist?" if name else "  nothing was reconciled yet"
        for repeated in list(_group_repeated(controller["runs"]))[:_SHOWN]:
            yield from _format_run(repeated[0], with_name=not name)
            if len(repeated) > 1:
                since = _ago(repeated[-1])
                yield f"    and {len(repeated) - 1} times before, with the same result, since {since} ago"
        if name and controller["next"]:
            tries = f" after {controller['failures']} failures" if controller["failures"] else ""
            yield f"  next reconcile in {_length(controller['next'])}{tries}"
        if controller["waiting"]:
            yield f"  {controller['waiting']} objects wait to be reconciled"


def _group_repeated(runs: list[Object]) -> Iterator[list[Object]]:
    """Group consecutive runs with the same result, such as repeated failures."""

    def result_of(run: Object) -> object:
        is_again = [reason["what"] for reason in run["reasons"]] in (["retry"], ["requeue"], ["resync"])
        return (run["namespace"], run["name"], run["outcome"], run["error"]) if is_again else run["began"]

    for _, repeated in groupby(runs, key=result_of):
        yield list(repeated)


def _ago(run: Object) -> str:
    return format_duration((datetime.now(UTC) - datetime.fromisoformat(run["began"])).total_seconds())


def _format_run(run: Object, *, with_name: bool) -> Iterator[str]:
    which = f" {run['namespace']}/{run['name']}".replace(" /", " ") if with_name else ""
    took = f"waited {_length(run['waited'])}, took {_length(run['seconds'])}"
    again = f", again in {_length(run['again'])}" if run["again"] else ""
    yield f"  {_ago(run)} ago{which}: {run['outcome']} ({took}{again})"
    if run["error"]:
        yield f"    {run['error']}"
    for reason in run["reasons"]:
        yield f"    because {_reason(reason)}"


def _reason(reason: Object) -> str:
    plain = {
        "retry": "the last reconcile failed",
        "requeue": "the handler requested it",
        "resync": "of the periodic resync",
    }
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
