"""Starts the fork server of a node, or finds the one that an earlier agent has left."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pinnace
from pinnace.node.runtime.embedded import fork_server
from pinnace.node.runtime.embedded.channels import Channel, ChannelClosed, connect
from pinnace.node.runtime.embedded.messages import Message
from pinnace.node.runtime.errors import RuntimeFailure

_START_SECONDS = 30.0
_CODE = "import sys; sys.path.insert(0, {root!r}); from pinnace.node.runtime.embedded.fork_server import main; main()"
LOG = "fork-server.log"


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities that the fork server has on this machine."""

    is_root: bool
    id_count: int
    """How many user ids pods have: 0 for all, 1 for an ordinary user without subordinate ids."""
    has_overlay: bool
    has_seccomp: bool
    pid: int


async def open_fork_server(
    directory: Path, options: Message, *, on_close: Callable[[], None]
) -> tuple[Channel, Abilities]:
    """Connect to the fork server of a state directory, after starting it with the options if none runs."""
    path = directory / fork_server.SOCKET
    try:
        connection = connect(path)
    except OSError:
        await _start(directory, options)
        connection = connect(path)
    channel = Channel(connection, on_event=lambda _: None, on_close=on_close)
    try:
        reply, _ = await channel.request({"op": "hello"})
    except ChannelClosed:  # It was about to end.
        await _start(directory, options)
        channel = Channel(connect(path), on_event=lambda _: None, on_close=on_close)
        reply, _ = await channel.request({"op": "hello"})
    names = ("is_root", "id_count", "has_overlay", "has_seccomp", "pid")
    return channel, Abilities(**{name: reply[name] for name in names})


async def _start(directory: Path, options: Message) -> None:
    """Start the process. It belongs to no terminal, and outlives this one."""
    code = _CODE.format(root=str(Path(pinnace.__file__).parents[1]))
    arguments = (sys.executable, "-S", "-E", "-c", code, str(directory), json.dumps(options))
    with (directory / LOG).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={"PATH": os.defpath},
            cwd="/",
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            line = await process.stdout.readline()
            await process.wait()
    except TimeoutError:
        line = b""
    if line.strip() != b"ready":
        text = (directory / LOG).read_text(errors="replace").strip().splitlines()
        raise RuntimeFailure(
            f"the namespaces of the node cannot be made: {text[-1] if text else 'the fork server did not start'}; "
            "check that this user may create user namespaces (unshare -Urn true), or run as root"
        )
