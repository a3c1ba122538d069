"""A machine inside network namespaces, for the tests of egress: itself, and another machine beside it.

It prints one line for each attempt of a pod to reach the other machine: the address that the other machine sees, or the
error. Nothing here has a default route, and the other machine has no route to pods. The last line says whether the
machine forwarded packets before, while and after egress was open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import stat
import sys
import threading
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

from tests.node.runtime.embedded.conftest import HostOnly, Pods

from pinnace.network.netlink import Netlink
from pinnace.network.pods.egress import Egress, plan_link
from pinnace.node.machine import linux
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings
from pinnace.process.clock import SystemClock

OWN_ADDRESS, FAR_ADDRESS = "203.0.113.1", "203.0.113.2"
_PORT = 8080
_CLIENT = f"""
import socket
try:
    print(socket.create_connection(("{FAR_ADDRESS}", {_PORT}), 20).recv(100).decode())
except OSError as error:
    print(error)
"""
METADATA = "169.254.169.254"
_CLOSED = (METADATA, OWN_ADDRESS, "10.0.2.2", "10.0.2.3", "127.0.0.1", "link")
"""The addresses that pods do not reach. The last one is that of the machine on the link to the node."""
_KNOCK = f"""
import socket, sys
for address in sys.argv[1:]:
    try:
        print(address, socket.create_connection((address, {_PORT}), 1).recv(100).decode())
    except OSError:
        pass
print("none else")
"""


def main() -> None:
    netlink = Netlink()
    netlink.set_up("lo")
    assert not netlink.has_default_route(), "the test must run in a network namespace of its own"
    far = _start_far_machine(netlink)
    user = int(sys.argv[2])
    if user:
        _open_tun_device(Path(sys.argv[1]) / "tun")
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    try:
        asyncio.run(_run(Path(sys.argv[1])))
        assert not netlink.has_default_route()
    finally:
        far.close()


def _open_tun_device(path: Path) -> None:
    """Let every user open the device, as on most machines; in this mount namespace alone."""
    os.mknod(path, stat.S_IFCHR, os.makedev(10, 200))
    path.chmod(0o666)
    linux.mount(str(path), "/dev/net/tun", "", linux.MS_BIND)


def _start_far_machine(netlink: Netlink) -> socket.socket:
    """Start it, and return the connection that keeps it running."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        linux.unshare(linux.CLONE_NEWNET)
        theirs.send(b"1")
        theirs.recv(1)
        own = Netlink()
        own.add_address("eth0", IPv4Interface(f"{FAR_ADDRESS}/24"))
        own.set_up("eth0")
        own.add_address("eth0", IPv4Interface(f"{METADATA}/32"))
        assert not own.has_default_route()
        server = socket.create_server(("", _PORT))
        theirs.send(b"1")
        ours.close()
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        theirs.recv(1)
        os._exit(0)
    theirs.close()
    ours.recv(1)
    netlink.add_veth("far0", "eth0", peer_pid=pid)
    netlink.add_address("far0", IPv4Interface(f"{OWN_ADDRESS}/24"))
    netlink.add_link_route(IPv4Network(METADATA), name="far0")
    machine = socket.create_server(("", _PORT))
    threading.Thread(target=_serve, args=(machine,), daemon=True).start()
    ours.send(b"1")
    ours.recv(1)
    return ours


def _serve(server: socket.socket) -> None:
    while True:
        client, address = server.accept()
        client.send(address[0].encode())
        client.close()


def _find(name: str) -> str | None:
    """Pasta needs a machine with a default route."""
    return shutil.which(name) if name != "pasta" else None


async def _run(directory: Path) -> None:
    await _attempt(directory / "closed", is_open=False)
    await _attempt(directory / "open", is_open=True)


async def _knock_from_node(runtime: EmbeddedRuntime, addresses: list[str]) -> str:
    """Knock from the network of the node, as pods with its network do, and proxies that lead to endpoints."""
    reached = []
    for address in addresses:
        with await runtime.open_socket(socket.AF_INET, socket.SOCK_STREAM) as opened:
            opened.settimeout(1)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(opened.connect, (address, _PORT))
                reached.append(address)
    return " ".join([*reached, "none else"])


def _forwarding() -> str:
    return Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()


async def _attempt(directory: Path, *, is_open: bool) -> None:
    settings = EmbeddedSettings(directory=directory, has_egress=is_open)
    runtime = await EmbeddedRuntime.open(settings, HostOnly(directory), SystemClock())
    pods = Pods(runtime, directory)
    try:
        if not is_open:
            print(await pods.output(["python3", "-c", _CLIENT]), end="")
            return
        seen = [_forwarding()]
        egress = Egress(runtime, pid=await runtime.node_pid(), directory=directory, find=_find)
        await egress.open()
        seen.append(_forwarding())
        print(await pods.output(["python3", "-c", _CLIENT]), end="")
        link = str(plan_link(directory).machine.ip)
        closed = [rule.replace("link", link) for rule in _CLOSED]
        print((await pods.output(["python3", "-c", _KNOCK, *closed])).replace("\n", ";"))
        print(await _knock_from_node(runtime, closed))
        await egress.close()
        print(await pods.output(["python3", "-c", _CLIENT]), *seen, _forwarding(), sep="", flush=True)
    finally:
        await runtime.end()


if __name__ == "__main__":
    main()
