"""`pinnace logs`: print the logs of containers."""

from __future__ import annotations

import asyncio
import math
import sys
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pinnace.cli.flags.shared import Container, Context, Kubeconfig, Labels, Namespace
from pinnace.cli.flags.values import seconds_of
from pinnace.cli.kubectl.pods import container_for, containers_of, find_object, pods_of
from pinnace.cli.session import CommandError, converse, failing_with
from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote

_TAIL_OF_MANY = 10


@dataclass(frozen=True, slots=True)
class _Source:
    pod: str
    namespace: str
    container: str
    prefix: str


def logs(
    pod: Annotated[str, typer.Argument(metavar="POD | TYPE/NAME", show_default=False)] = "",
    container_word: Annotated[str, typer.Argument(metavar="[CONTAINER]", show_default=False)] = "",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue with new lines.")] = False,
    container: Container = "",
    all_containers: Annotated[
        bool, typer.Option("--all-containers", help="All containers, one after the other.")
    ] = False,
    all_pods: Annotated[bool, typer.Option("--all-pods", help="All pods of TYPE/NAME.")] = False,
    tail: Annotated[
        int | None, typer.Option(help="Only the last lines; -1 for all.", show_default="all; 10 with -l")
    ] = None,
    since: Annotated[str, typer.Option(help="Only lines younger than this: 30s, 5m, 2h.", show_default=False)] = "",
    since_time: Annotated[
        str, typer.Option(help="Only lines after this time: 2026-01-31T10:00:00Z.", show_default=False)
    ] = "",
    previous: Annotated[
        bool, typer.Option("-p", "--previous", help="The log before the container's last start.")
    ] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Begin each line with its time.")] = False,
    limit_bytes: Annotated[int, typer.Option(help="Print at most this many bytes; 0 for all.", min=0)] = 0,
    prefix: Annotated[bool, typer.Option("--prefix", help="Begin each line with its pod and container.")] = False,
    max_log_requests: Annotated[int, typer.Option(help="The most logs to follow at once.", min=1)] = 5,
    selector: Labels = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Print the logs of the containers of a pod.

    \b
    Examples:
      pinnace logs web                      the pod's only container, or its first
      pinnace logs web -c sidecar --tail 20
      pinnace logs web -f                   and new lines as they are written
      pinnace logs web --since 10m --timestamps
      pinnace logs web --previous           why did it crash?
      pinnace logs deploy/web               of one of its pods
      pinnace logs -l app=web --prefix --all-containers
    """
    named = container or container_word
    _check(
        (
            not pod and not selector,
            "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a "
            "required argument for the logs command\nSee 'pinnace logs -h' for help and examples",
        ),
        (
            bool(pod and selector),
            "only a selector (-l) or a POD name is allowed\nSee 'pinnace logs -h' for help and examples",
        ),
        (bool(since and since_time), "at most one of `sinceTime` or `sinceSeconds` may be specified"),
        (bool(all_containers and named), f"--all-containers=true should not be specified with container name {named}"),
        (bool(container and container_word), "only one of -c or an inline [CONTAINER] arg is allowed"),
        (tail is not None and tail < -1, "--tail must be greater than or equal to -1"),
    )
    seconds = _seconds(since) if since else None
    if tail is None and selector:
        tail = _TAIL_OF_MANY
    options: dict[str, Any] = {
        "follow": follow,
        "previous": previous,
        "timestamps": timestamps,
        "tail_lines": None if tail == -1 else tail,
        "since_seconds": seconds,
        "since_time": since_time,
        "limit_bytes": limit_bytes or None,
    }

    async def talk(client: Client) -> None:
        pods = await _pods(client, pod, selector, all_pods=all_pods)
        if not pods:
            print(f"No resources found in {client.namespace} namespace.", file=sys.stderr)
            return
        sources = [
            source
            for pod in pods
            for source in _sources(pod, named, all_containers=all_containers, prefix=prefix or all_pods)
        ]
        await _print(client, sources, options, most_at_once=max_log_requests)

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


def _check(*checks: tuple[bool, str]) -> None:
    """Exit with the message of the first check that is true."""
    for is_wrong, message in checks:
        if is_wrong:
            failing_with(1, f"error: {message}")


def _seconds(since: str) -> int:
    """Return whole seconds, rounded, but at least one: the server rejects zero."""
    try:
        seconds = seconds_of(since)
    except ValueError as error:
        failing_with(1, f'error: invalid argument "{since}" for "--since" flag: {error}')
    if seconds <= 0:
        failing_with(1, "error: --since must be greater than 0")
    return max(1, math.floor(seconds + 0.5))


async def _pods(client: Client, word: str, selector: str, *, all_pods: bool) -> list[Object]:
    if selector:
        return await client.list("v1/Pod", namespace=client.namespace, labels=selector)
    try:
        named = await find_object(client, word)
    except errors.NotFound as missing:
        raise CommandError(
            f"error from server (NotFound): {missing.message} in namespace {quote(client.namespace)}"
        ) from None
    pods = await pods_of(client, named)
    if len(pods) > 1 and not all_pods:
        print(f"Found {len(pods)} pods, using pod/{pods[0]['metadata']['name']}", file=sys.stderr, flush=True)
        return pods[:1]
    return pods


def _sources(pod: Object, container: str, *, all_containers: bool, prefix: bool) -> list[_Source]:
    names = containers_of(pod) if all_containers else [container_for(pod, container)]
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    return [
        _Source(name, namespace, container_name, f"[pod/{name}/{container_name}] " if prefix else "")
        for container_name in names
    ]


async def _print(client: Client, sources: list[_Source], options: dict[str, Any], *, most_at_once: int) -> None:
    if options["follow"] and len(sources) > most_at_once:
        raise CommandError(
            f"you are attempting to follow {len(sources)} log streams, but maximum allowed concurrency is "
            f"{most_at_once}, use --max-log-requests to increase the limit"
        )
    if not options["follow"]:
        for source in sources:
            await _print_one(client, source, options)
        return
    try:
        async with asyncio.TaskGroup() as group:
            for source in sources:
                group.create_task(_print_one(client, source, options))
    except ExceptionGroup as failures:  # Not `except*`: Python 3.11.2 would wrap an error raised within it in a group.
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first if isinstance(first, Exception) else CommandError(str(first)) from None


async def _print_one(client: Client, source: _Source, options: dict[str, Any]) -> None:
    """Print a log byte for byte, but by whole lines: several logs may be printed at once."""
    chunks = client.log_bytes(source.pod, namespace=source.namespace, container=source.container, **options)
    prefix, rest = source.prefix.encode(), b""
    try:
        async with aclosing(chunks) as written:
            async for chunk in written:
                *whole, rest = (rest + chunk).split(b"\n")
                _write(b"".join(b"%b%b\n" % (prefix, line) for line in whole), flush=options["follow"])
    except errors.BadRequest as error:
        if options["since_time"] and error.message.startswith("parsing time"):
            raise CommandError(error.message) from None  # kubectl checks this itself and prints the same message.
        raise
    finally:
        _write(prefix + rest if rest else b"", flush=True)


def _write(data: bytes, *, flush: bool) -> None:
    sys.stdout.buffer.write(data)
    if flush:
        sys.stdout.buffer.flush()
