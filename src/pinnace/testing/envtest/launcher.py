"""The kube-apiserver program: asks the etcd program of its folder to serve, and stays until a signal.

Run by its path, with the standard library alone, so that it starts in 20 ms. The server itself runs in the process of
the etcd program, which has loaded its code meanwhile; so two servers over one etcd share their data.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ETCD_SECONDS = 10.0
"""How long to wait for etcd, which some test tools start at the same moment."""
_POLL_SECONDS = 0.01
_LONGEST = 1 << 20


def socket_directory() -> Path:
    """Return the directory of this user's sockets, one for each etcd program. Raise OSError if others may write it."""
    directory = Path(tempfile.gettempdir()) / f"pinnace-etcd-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077 or not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{directory} must be a directory that only its owner can use; remove it")
    return directory


def etcd_port(args: Sequence[str]) -> int:
    """Return the port of --etcd-servers. Raise ValueError."""
    for at, arg in enumerate(args):
        name, equals, value = arg.lstrip("-").partition("=")
        if name == "etcd-servers":
            value = value if equals else next(iter(args[at + 1 :]), "")
            port = value.split(",")[0].rstrip("/").rpartition(":")[2]
            if port.isdigit():
                return int(port)
            raise ValueError(f"--etcd-servers={value}: expected an address with a port, such as http://127.0.0.1:2379")
    raise ValueError("--etcd-servers is missing: the address of the etcd program")


def main(program: str, args: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    try:
        port = etcd_port(args)
        connection = _connect(str(socket_directory() / f"{port}.sock"))
    except ValueError as error:
        return _fail(str(error))
    except (FileNotFoundError, ConnectionError):
        return _fail(
            f"no etcd program of pinnace listens on port {port}; start {Path(program).parent / 'etcd'} first, with "
            f"--listen-client-urls=http://127.0.0.1:{port}"
        )
    except OSError as error:
        return _fail(str(error))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: connection.sendall(b"stop\n"))
    environment = {name: value for name, value in os.environ.items() if name.startswith("PINNACE_")}
    request = {"program": program, "args": list(args), "environment": environment, "directory": os.getcwd()}
    connection.sendall(json.dumps(request).encode() + b"\n")
    return _follow(connection)


def _connect(path: str) -> socket.socket:
    """Connect to the etcd program. Raise OSError if it does not listen in time."""
    end = time.monotonic() + ETCD_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionError):
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return connection


def _follow(connection: socket.socket) -> int:
    """Print the server's log until it ends."""
    code = 1
    with connection.makefile("rb") as lines:
        while line := lines.readline(_LONGEST):
            message = json.loads(line)
            if "exit" in message:
                code = int(message["exit"])
            if message.get("log"):
                print(message["log"], file=sys.stderr, flush=True)
    if code:
        print("kube-apiserver: the server has ended", file=sys.stderr)
    return code


def _fail(message: str) -> int:
    print(f"kube-apiserver: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
