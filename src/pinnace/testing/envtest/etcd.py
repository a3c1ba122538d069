"""The etcd program: holds the data of API servers, and serves them in its own process.

It answers health checks before its code is loaded, so that a test suite goes on to prepare its API server meanwhile.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pinnace.testing.envtest.flags import ETCD, FlagError, parse
from pinnace.testing.envtest.launcher import socket_directory

_PAGES = {
    b"/health": b'{"health":"true","reason":""}',
    b"/livez": b"ok",
    b"/readyz": b"ok",
    b"/version": b'{"etcdserver":"3.6.0","etcdcluster":"3.6.0"}',
}
_HEAD = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
_PATIENCE = 2.0


class HealthPages:
    """Answers GET /health and the like on the client addresses, in a thread of its own."""

    def __init__(self, urls: Sequence[str]) -> None:
        """Raise FlagError for an address that cannot be listened on."""
        self._sockets = [_listen(url) for url in urls]
        self.ports = [int(listener.getsockname()[1]) for listener in self._sockets]

    def start(self) -> None:
        for listener in self._sockets:
            threading.Thread(target=_serve_pages, args=(listener,), daemon=True).start()


def _listen(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise FlagError(f"--listen-client-urls={url}: expected an address such as http://127.0.0.1:2379")
    try:
        family = socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET
        return socket.create_server((parts.hostname, parts.port or 2379), family=family)
    except OSError as error:
        raise FlagError(f"cannot listen on {url}: {error.strerror}; choose another port") from None


def _serve_pages(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_PATIENCE)  # A client that says nothing must not keep the others waiting.
            path = connection.recv(4096).split(b" ", 2)[1:2]
            page = _PAGES.get(path[0].partition(b"?")[0]) if path else None
            status = b"200 OK" if page is not None else b"404 Not Found"
            connection.sendall(_HEAD % (status, len(page or b"")) + (page or b""))


def main(args: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    try:
        flags = parse("etcd", ETCD, args)
        pages = HealthPages(flags.items("listen-client-urls") or ("http://127.0.0.1:2379",))
        directory = socket_directory()
    except (FlagError, OSError) as error:
        print(f"etcd: {error}", file=sys.stderr)
        return 1
    pages.start()
    stop_early = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop_early.set())
    with contextlib.ExitStack() as stack:
        launchers = [stack.enter_context(_accept_launchers(directory / f"{port}.sock")) for port in pages.ports]
        gc.disable()  # Until the first server runs: code and schemas, which stay, would be visited again and again.
        from pinnace.testing.envtest.servers import serve  # noqa: PLC0415 - health checks are answered meanwhile.

        if not stop_early.is_set():
            serve(launchers, Path(flags.text("data-dir", "default.etcd")))
    return 0


@contextlib.contextmanager
def _accept_launchers(path: Path) -> Iterator[socket.socket]:
    """Listen for launchers: those that connect before the servers are loaded wait."""
    path.unlink(missing_ok=True)  # Its port was free, so that its process is gone.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
