"""Ask the operators of this machine why they reconciled an object, and describe their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import orjson

from pinnace.kinds.cells import format_duration
from pinnace.model.objects import Object
from pinnace.sdk.operator.why_answers import short_name, socket_directory

_MOST_RUNS = 10


class NoAnswer(Exception):
    """The question is not valid, or no operator can answer it. The message says what to do."""


def check_question(words: list[str], output: str) -> tuple[str, str]:
    """Return the kind and the name of `website/blog` or `website blog`; empty without words. Raise NoAnswer."""
    if output not in ("", "json"):
        raise NoAnswer(f"-o {output}: only json is known")
    if not words:
        return "", ""
    if len(words) == 1 and "/" in words[0]:
        kind, _, name = words[0].partition("/")
        return kind.lower(), name
    if len(words) == 2 and "/" not in "".join(words):
        return words[0].lower(), words[1]
    raise NoAnswer("name one object, as website/blog or website blog")


def explain(words: list[str], *, namespace: str, operator: str = "", output: str = "") -> str:
    """Return why the operators of this user on this machine reconciled an object, as text or JSON. Raise NoAnswer."""
    kind, name = check_question(words, output)
    answers = asyncio.run(_ask_all({"namespace": namespace, "name": name}))
    if operator:
        answers = [answer for answer in answers if answer["operator"] == operator]
    if not answers:
        raise NoAnswer(
            "no operator answers on this machine; start one with pinnace run, or ask one in the cluster: "
            "--in deploy/NAME"
        )
    chosen = [_only(answer, kind) for answer in answers]
    if kind and not any(answer["controllers"] for answer in chosen):
        known = {controller["kind"] for answer in answers for controller in answer["controllers"] if controller["kind"]}
        raise NoAnswer(f"no operator here reconciles {kind}; they reconcile: {', '.join(sorted(known)) or 'nothing'}")
    if output == "json":
        return json.dumps(chosen, indent=4, sort_keys=True, ensure_ascii=False) + "\n"
    return "".join(f"{line}\n" for answer in chosen for line in _format_answer(answer, namespace, name))


async def _ask_all(question: Object) -> list[Object]:
    """Return the answers of all operators of this user on this machine."""
    place = socket_directory()
    sockets = sorted(place.glob("*.sock")) if place.is_dir() else []
    answers = [await _ask(path, question) for path in sockets]
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
        controller
        for controller in answer["controllers"]
        if not kind or (word in controller["words"] and group in ("", controller["group"]))
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
        for repeated in list(_group_repeated(controller["runs"]))[:_MOST_RUNS]:
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
