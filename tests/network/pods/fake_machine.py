"""A machine inside network namespaces, for the tests of egress: itself, and another machine beside it.

It prints one line for each attempt of a pod to reach the other machine: the address that the other machine sees, or the
error. Nothing here has a default route, and the other machine has no route to pods. The last line says whether the
machine forwarded packets before, while and after egress was open.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import sys
import threading
from ipaddress import IPv4Interface
from pathlib import Path

from tests.node.runtime.embedded.conftest import HostOnly, Pods

from pinnace.model.clock import SystemClock
from pinnace.network.pods.egress import Egress
from pinnace.network.pods.netlink import Netlink
from pinnace.node.runtime.embedded import linux
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings

OWN_ADDRESS, FAR_ADDRESS = "203.0.113.1", "203.0.113.2"
_PORT = 8080
_CLIENT = f"""
import socket
try:
    print(socket.create_connection(("{FAR_ADDRESS}", {_PORT}), 20).recv(100).decode())
except OSError as error:
    print(error)
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
    linux.bind(str(path), "/dev/net/tun")


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
        assert not own.has_default_route()
        server = socket.create_server((FAR_ADDRESS, _PORT))
        theirs.send(b"1")
        ours.close()
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        theirs.recv(1)
        os._exit(0)
    theirs.close()
    ours.recv(1)
    netlink.add_veth("far0", "eth0", peer_pid=pid)
    netlink.add_address("far0", IPv4Interface(f"{OWN_ADDRESS}/24"))
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


def _forwarding() -> str:
    return Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()


async def _attempt(directory: Path, *, is_open: bool) -> None:
    settings = EmbeddedSettings(directory=directory, has_egress=is_open)
    runtime = await EmbeddedRuntime.open(settings, HostOnly(), SystemClock())
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
        await egress.close()
        print(await pods.output(["python3", "-c", _CLIENT]), *seen, _forwarding(), sep="", flush=True)
    finally:
        await runtime.end()


if __name__ == "__main__":
    main()
