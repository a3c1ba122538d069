"""A killed fork server takes nothing with it: the pods that follow are in one network with those from before."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node.census import supervisor_of
from tests.node.runtime.embedded.conftest import HostOnly, Pods, open_runtime, until

from pinnace.network.pods.addresses import PodAddresses
from pinnace.node.machine.channels import Channel, ChannelClosed
from pinnace.node.runtime.embedded.connections.fork_server_client import ForkServerClient
from pinnace.node.runtime.embedded.connections.sandbox_channels import SandboxChannels
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings
from pinnace.node.runtime.embedded.state import State
from pinnace.process.clock import SystemClock

_SERVE = """
import socket
server = socket.create_server(("", 8000))
while True:
    client, _ = server.accept()
    client.sendall(b"hello")
    client.close()
"""
_ASK = "import socket, sys; print(socket.create_connection((sys.argv[1], 8000), 10).recv(9).decode(), end='')"


@pytest.fixture
async def own(fast_path: Path) -> AsyncIterator[Pods]:
    """Pods with a fork server of their own."""
    pods = Pods(await open_runtime(fast_path), fast_path)
    try:
        yield pods
    finally:
        for known in await pods.runtime.sandboxes():
            await pods.runtime.remove_sandbox(known.id)
        await pods.runtime.close()


async def test_pods_from_before_and_after_reach_each_other(own: Pods) -> None:
    before = await _serve(own, "before")
    await _kill_fork_server(own)
    after = await _serve(own, "after")
    assert await _ask(own, before, after) == await _ask(own, after, before) == b"hello"


async def test_a_later_agent_has_the_network_of_the_pods_that_run(own: Pods) -> None:
    before = await _serve(own, "before")
    await own.runtime.close()
    os.kill(_fork_server(own), signal.SIGKILL)
    own.runtime = await open_runtime(own.directory)
    after = await _serve(own, "after")
    assert await _ask(own, before, after) == await _ask(own, after, before) == b"hello"


async def test_a_paused_pod_does_not_keep_the_network_from_a_later_agent(
    own: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.node.runtime.embedded.connections.fork_server_client._NAMESPACE_SECONDS", 0.1)
    places = [await _serve(own, "before"), await _serve(own, "other")]
    await own.runtime.close()
    os.kill(_fork_server(own), signal.SIGKILL)
    paused = own.supervisor(min(sandbox for sandbox, _ in places))
    os.kill(paused, signal.SIGSTOP)
    try:
        own.runtime = await open_runtime(own.directory)
    finally:
        os.kill(paused, signal.SIGCONT)
    after = await _serve(own, "after")
    for before in places:
        assert await _ask(own, before, after) == await _ask(own, after, before) == b"hello"


async def test_the_sockets_of_an_agent_stay_in_the_network_of_the_pods(own: Pods) -> None:
    """No pod keeps the network: the DNS server and the proxies of Services are those of the agent."""
    listener = await own.runtime.find_listener(socket.SOCK_STREAM, "0.0.0.0", 8000)
    listener.listen()
    await _kill_fork_server(own)
    sandbox = await own.sandbox()
    container = await own.start(["sleep", "1000"], sandbox)
    node = PodAddresses(EmbeddedSettings(directory=own.directory).pod_network, "").node.partition("/")[0]
    asking = asyncio.create_task(own.runtime.exec_sync(container, ["python3", "-c", _ASK, node], timeout=60))
    listener.setblocking(False)
    client, _ = await asyncio.get_running_loop().sock_accept(listener)
    client.sendall(b"hello")
    client.close()
    listener.close()
    assert (await asking).output == b"hello"


async def test_pods_from_before_and_after_have_one_file_system_in_memory(own: Pods) -> None:
    """Otherwise the Secrets of the former would stay in memory until the last of them ends."""
    before = await own.sandbox(name="before")
    memory = await own.runtime.memory()
    os.close(os.open("secret", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=memory.fd))
    await _kill_fork_server(own)
    after = await own.sandbox(name="after")
    later = await own.runtime.memory()
    assert [await _in_memory(own, sandbox) for sandbox in (before, after)] == [["secret"]] * 2
    os.unlink("secret", dir_fd=later.fd)
    assert [await _in_memory(own, sandbox) for sandbox in (before, after)] == [[]] * 2


async def test_a_later_agent_has_the_memory_of_the_pods_that_run(own: Pods) -> None:
    before = await own.sandbox(name="before")
    memory = await own.runtime.memory()
    os.close(os.open("secret", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=memory.fd))
    await own.runtime.close()
    os.kill(_fork_server(own), signal.SIGKILL)
    own.runtime = await open_runtime(own.directory)
    assert [await _in_memory(own, sandbox) for sandbox in ("", before)] == [["secret"]] * 2


async def test_fork_servers_that_are_killed_leave_no_open_file(own: Pods) -> None:
    await own.sandbox()
    await _kill_fork_server(own)
    before = _open_files(os.getpid()), _open_files(_fork_server(own))
    for _ in range(3):
        await _kill_fork_server(own)

    async def has_no_more() -> bool:
        now = _open_files(os.getpid()), _open_files(_fork_server(own))
        return now[0] <= before[0] and now[1] <= before[1]

    await until(has_no_more)  # A connection that was closed here is open there for a moment.


async def test_a_fork_server_that_is_killed_while_it_is_prepared_leaves_no_open_file(fast_path: Path) -> None:
    kills = True

    async def prepare(channel: Channel) -> None:
        while kills:
            os.kill(supervisor_of(fast_path, ".."), signal.SIGKILL)
            await channel.request({"op": "ping"})

    options = {"node_addresses": ["10.244.0.1/24"], "idle_seconds": 0.1, "ends_with_agent": True}
    pods = SandboxChannels(State(fast_path), lambda _: None)
    connection = ForkServerClient(fast_path, options, pods, sandboxes=list, prepare=prepare)
    counts = []
    for _ in range(3):
        with pytest.raises(ChannelClosed):
            await connection.open()
        counts.append(_open_files(os.getpid()))
    kills = False
    await connection.open()
    await connection.end(60)
    connection.close()
    assert len(set(counts)) == 1


async def test_work_that_goes_on_at_once_starts_one_fork_server(own: Pods) -> None:
    killed = _fork_server(own)
    os.kill(killed, signal.SIGKILL)

    async def is_new() -> bool:
        return killed not in await asyncio.gather(*(own.runtime.node_pid() for _ in range(5)))

    await until(is_new)
    assert _fork_servers(own.directory) == [_fork_server(own)]


async def test_a_later_fork_server_ends_the_pods_of_the_killed_one(fast_path: Path) -> None:
    settings = EmbeddedSettings(directory=fast_path, ends_with_agent=True, idle_seconds=0.1)
    pods = Pods(await EmbeddedRuntime.open(settings, HostOnly(fast_path), SystemClock()), fast_path)
    supervisor = pods.supervisor(await pods.sandbox())
    await _kill_fork_server(pods)
    later = pods.supervisor(await pods.sandbox(name="later"))
    await pods.runtime.close()

    async def has_ended() -> bool:
        return not (any(Path(f"/proc/{pid}").exists() for pid in (supervisor, later)) or _fork_servers(fast_path))

    await until(has_ended)


async def _serve(pods: Pods, name: str) -> tuple[str, str]:
    """Start a pod that answers, and return its sandbox and its container."""
    sandbox = await pods.sandbox(name=name)
    container = await pods.start(["python3", "-c", _SERVE], sandbox)
    address = (await pods.runtime.sandbox(sandbox)).addresses[0]

    async def answers() -> bool:
        command = ["python3", "-c", _ASK, address]
        return (await pods.runtime.exec_sync(container, command, timeout=60)).output == b"hello"

    await until(answers)
    return sandbox, container


async def _ask(pods: Pods, client: tuple[str, str], server: tuple[str, str]) -> bytes:
    address = (await pods.runtime.sandbox(server[0])).addresses[0]
    return (await pods.runtime.exec_sync(client[1], ["python3", "-c", _ASK, address], timeout=60)).output


def _fork_server(pods: Pods) -> int:
    return supervisor_of(pods.directory, "..")


async def _kill_fork_server(pods: Pods) -> None:
    killed = _fork_server(pods)
    os.kill(killed, signal.SIGKILL)

    async def is_new() -> bool:
        return await pods.runtime.node_pid() != killed

    await until(is_new)


async def _in_memory(pods: Pods, sandbox: str) -> list[str]:
    memory = await pods.runtime.memory(sandbox)
    return os.listdir(memory.fd)


def _open_files(pid: int) -> int:
    gc.collect()  # A directory in memory is closed with its last user, such as the frame of an error.
    return len(os.listdir(f"/proc/{pid}/fd"))


def _fork_servers(directory: Path) -> list[int]:
    """The processes that were started with a state directory."""
    results = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (place / "cmdline").read_bytes().split(b"\0")
            name = (place / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if os.fsencode(directory) in arguments and name == "pinnace-node":
            results.append(int(place.name))
    return results
