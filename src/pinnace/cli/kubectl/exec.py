"""`pinnace exec`: run a command in a container, with its input, output and exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Annotated

import typer

from pinnace.cli.flags.shared import Container, Context, Kubeconfig, Namespace
from pinnace.cli.kubectl.pods import container_for, one_pod
from pinnace.cli.session import CommandError, converse, failing_with
from pinnace.client.client import Client
from pinnace.client.commands import CommandSession, Output
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.process.tasks import Tasks


def exec_(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="POD | TYPE/NAME -- COMMAND [ARGUMENT...]")],
    stdin: Annotated[bool, typer.Option("-i", "--stdin", help="Pass standard input to the command.")] = False,
    tty: Annotated[bool, typer.Option("-t", "--tty", help="Give the command a terminal.")] = False,
    container: Container = "",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only the command's output.")] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Run a command in a container. Its exit code is the command's.

    \b
    Examples:
      pinnace exec web -- ls -l /           the pod's only container, or its first
      pinnace exec -it web -- sh            a shell
      pinnace exec web -c sidecar -- env
      echo hello | pinnace exec -i web -- cat
      pinnace exec deploy/web -- date       in one of its pods
    """
    command = ctx.meta.get("pinnace.command_after_dashes")
    if command is None:
        failing_with(
            1,
            "error: exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead\n"
            "See 'pinnace exec -h' for help and examples",
        )
    before = words[: len(words) - len(command)]
    if not before:
        failing_with(1, "error: pod, type/name or --filename must be specified")
    if not command:
        failing_with(1, "error: you must specify at least one command for the container")
    is_terminal = sys.stdin.isatty()
    if tty and not is_terminal and not quiet:
        print("Unable to use a TTY - input is not a terminal or the right kind of file", file=sys.stderr)
    tty = tty and is_terminal

    async def talk(client: Client) -> int:
        pod = await one_pod(client, before[0])
        chosen = container_for(pod, container, says=not quiet)
        metadata = pod["metadata"]
        running = client.exec(
            metadata["name"], command, namespace=metadata["namespace"], container=chosen, stdin=stdin, tty=tty
        )
        try:
            with _raw_terminal(tty):
                async with running as session:
                    code = await _attend(session, stdin=stdin, tty=tty)
        except errors.ApiError as error:
            raise CommandError(error.message) from None  # The node's message, without the server's prefix.
        if code and not quiet:
            print(f"command terminated with exit code {code}", file=sys.stderr)
        return code

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def _attend(session: CommandSession, *, stdin: bool, tty: bool) -> int:
    """Copy input and output until the command ends; return its exit code."""
    loop = asyncio.get_running_loop()
    async with Tasks(expected=(OSError, ConnectionLost)) as inputs:  # `wait` raises the loss of the connection.
        if stdin:
            inputs.start(_copy_stdin(session))
        if tty:
            await _resize(session)
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(signal.SIGWINCH, lambda: inputs.start(_resize(session)))
        try:
            await _write_both(session)
            return await session.wait()
        finally:
            if tty:
                with contextlib.suppress(NotImplementedError):
                    loop.remove_signal_handler(signal.SIGWINCH)


async def _write_both(session: CommandSession) -> None:
    async with Tasks(expected=(Exception,)) as outputs:  # The first error is raised here.
        await asyncio.gather(outputs.start(_write(session.stdout, 1)), outputs.start(_write(session.stderr, 2)))


async def _resize(session: CommandSession) -> None:
    """Send the terminal's real size, whatever COLUMNS and LINES say."""
    columns, lines = 80, 24
    with contextlib.suppress(OSError):
        columns, lines = os.get_terminal_size(sys.stdin.fileno())
    await session.resize(columns, lines)


async def _write(output: Output, descriptor: int) -> None:
    async for piece in output:
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


async def _copy_stdin(session: CommandSession) -> None:
    """Send standard input to the command. A thread reads it: only that works for files, pipes and terminals."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        while True:
            piece = os.read(0, 65536)
            with contextlib.suppress(RuntimeError):  # The command and the event loop have ended meanwhile.
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            if not piece:
                return

    threading.Thread(target=read, daemon=True).start()
    while piece := await pieces.get():
        await session.write(piece)
    await session.close_stdin()


@contextlib.contextmanager
def _raw_terminal(wanted: bool) -> Iterator[None]:
    """Set the terminal to raw mode, in which the command receives every key, also Ctrl-C."""
    if not wanted:
        yield
        return
    import termios  # noqa: PLC0415 - not on every platform
    import tty  # noqa: PLC0415 - not on every platform

    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
