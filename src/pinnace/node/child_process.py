"""A node agent as a child process of the server: it ends with the server, and is killed if it stalls."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

_log = logging.getLogger(__name__)
STOP_SECONDS = 30.0
_CODE = "from pinnace.cli.main import main; main()"


class NodeEnded(Exception):
    """The process of the node has ended, or cannot be started; it is tried again."""


@dataclass(frozen=True, slots=True)
class OwnNode:
    """A node of this machine: its name, its state directory, and the addresses of its pods."""

    name: str
    directory: Path
    pod_networks: tuple[str, ...]
    """The IPv4 network, and in a dual-stack cluster one of IPv6."""
    service_ranges: tuple[str, ...]
    """The IPv4 range, and in a dual-stack cluster one of IPv6."""
    links: Path | None = None
    """The directory that several nodes of this machine share."""
    has_egress: bool = False
    has_host_image: bool | None = None
    feature_gates: str = ""
    is_temporary: bool = False
    """Whether the state directory goes with the server: the pods must end even if the server is killed."""


def make_state_directory(directory: Path, name: str) -> None:
    """Create the directory of a node, but not its parent: a removed data directory must stay away until it is back."""
    try:
        directory.mkdir(exist_ok=True, mode=0o711)
    except FileNotFoundError:
        raise NodeEnded(f"{directory.parent} was removed: node {name} has no place for its state") from None


async def run_process(node: OwnNode) -> None:
    name, directory = node.name, node.directory
    arguments = ["node", "--name", name, "--directory", str(directory), "--stop-pods", "--with-parent"]
    # Pods reach the node, and its node ports, at its bridge. This machine reaches node ports at 127.0.0.1.
    bridge = ",".join(str(ip_network(network)[1]) for network in node.pod_networks)
    arguments += [
        "--node-ip",
        bridge,
        "--pod-network",
        ",".join(node.pod_networks),
        "--service-cluster-ip-range",
        ",".join(node.service_ranges),
    ]
    if node.is_temporary:
        arguments.append("--temporary")
    if node.links is not None:
        arguments += ["--links", str(node.links)]
    if node.feature_gates:
        arguments += ["--feature-gates", node.feature_gates]
    if node.has_egress:
        arguments.append("--egress")
    if node.has_host_image is not None:
        arguments.append("--host-image" if node.has_host_image else "--no-host-image")
    beats, end = os.pipe2(os.O_CLOEXEC)
    try:
        try:
            # Without -P the modules of the current directory would take the place of Python's own.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _CODE, *arguments, "--kubeconfig", str(directory / "kubeconfig")),
                *("--beats", str(end)),
                stdin=asyncio.subprocess.PIPE,  # It ends with this process, and the agent with it.
                pass_fds=(end,),
                start_new_session=True,
            )
        finally:
            os.close(end)
        await _watch(process, name, beats)
    finally:
        os.close(beats)


async def _watch(process: asyncio.subprocess.Process, name: str, beats: int) -> None:
    """Wait for the end of an agent, or for its stall, which ends it. Raise NodeEnded."""
    from pinnace.node.agent.process.watch_dog import await_stall, end_stalled  # noqa: PLC0415 - when the server is ready.

    try:
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(process.wait())
            stalled = group.create_task(await_stall(beats))
            await asyncio.wait((ended, stalled), return_when=asyncio.FIRST_COMPLETED)
            silence = stalled.result() if stalled.done() and not ended.done() else 0.0
            if silence:
                _log.error("the loop of node %s has not turned for %.0f s: its process is killed", name, silence)
                await end_stalled(process)
            code = await ended
            stalled.cancel()
        raise NodeEnded(f"the process of node {name} {'stalled' if silence else f'ended with {code}'}")
    finally:
        if process.returncode is None:
            await stop_process(process, name)


async def stop_process(process: asyncio.subprocess.Process, name: str) -> None:
    """End the process of a node and wait for it. Kill it if it takes too long: the server must be able to stop."""
    process.terminate()
    async with asyncio.TaskGroup() as group:
        ended = group.create_task(process.wait())
        # Not `asyncio.timeout`: before Python 3.11.4 it raises no TimeoutError in a task that is being cancelled.
        await asyncio.wait((ended,), timeout=STOP_SECONDS)
        if not ended.done():
            _log.warning("node %s has not stopped within %.0f s: it is killed", name, STOP_SECONDS)
            process.kill()
