"""Messages between processes of this machine: JSON with open files, on SOCK_SEQPACKET, and a server for requests.

A request has `op` and `n`; its replies repeat `n`. Events have `event` instead. `channels` has the client. The fork
server and the supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

_MAX_BYTES = 1 << 16
_MAX_FDS = 128
_MOST_PEERS, _BACKLOG = 1000, 64
Message = dict[str, Any]
_CREDENTIALS = struct.Struct("iII")


def send(channel: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Raise OSError if the peer is gone or does not read."""
    data = json.dumps(message).encode()
    if len(data) > _MAX_BYTES:
        raise OSError(f"a message of {len(data)} bytes exceeds {_MAX_BYTES}; pass the data in a file")
    socket.send_fds(channel, [data], list(fds))


def receive(channel: socket.socket) -> tuple[Message | None, list[int]]:
    """Return a message and its open files, which the caller must close; None at the end of the connection.

    Raise OSError for anything but a message.
    """
    data, fds, _, _ = socket.recv_fds(channel, _MAX_BYTES, _MAX_FDS)
    if not data:
        return None, fds
    for fd in fds:
        os.set_inheritable(fd, False)
    try:
        message = json.loads(data)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        for fd in fds:
            os.close(fd)
        raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
    return message, fds


def listen(directory: str, name: str) -> socket.socket:
    """Listen at a path that only this user can open, whatever the umask is.

    The path may be longer than the 107 bytes that an address has.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=here)
        os.fchmod(listener.fileno(), 0o600)  # The file at the path gets the mode of the socket.
        listener.bind(f"/proc/self/fd/{here}/{name}")
    except OSError:
        listener.close()
        raise
    finally:
        os.close(here)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def user_of(channel: socket.socket) -> int:
    """Return the id, in this user namespace, of the user who has made the other end of a connection."""
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def connect(path: str | os.PathLike[str]) -> socket.socket:
    """Connect to a socket by its path, however long it is. Raise OSError if nothing listens."""
    directory, name = os.path.split(path)
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"/proc/self/fd/{place}/{name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(place)
    return connection


class SocketPeer:
    """A client of a server, by its connection."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        with contextlib.suppress(OSError):  # A peer that is gone, or does not read, is closed by its own event.
            send(self.channel, message, fds)


class SocketRequest:
    """A request of a client, which may have several replies. Its files are closed after the call that answers it."""

    def __init__(self, peer: SocketPeer, content: Message, fds: list[int]) -> None:
        self.peer = peer
        self.content = content
        self.fds = fds
        self.number: int = content.get("n", 0)

    def take_files(self) -> list[int]:
        """Return the files to a caller that closes them itself."""
        taken, self.fds = self.fds, []
        return taken

    def reply(self, content: Message, fds: Sequence[int] = ()) -> None:
        self.peer.send({"n": self.number, **content}, fds)


class Readers(Protocol):
    """The part of an event loop that a server needs: asyncio has it, and `PollLoop`."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object: ...

    def remove_reader(self, fd: int, /) -> object: ...


class MessageServer:
    """Answers the requests of one user's processes."""

    def __init__(
        self,
        loop: Readers,
        answer: Callable[[SocketRequest], None],
        *,
        on_close: Callable[[SocketPeer], None] = lambda _: None,
    ) -> None:
        """An error that `answer` raises is a reply. `on_close` is called when a client has gone."""
        self._loop = loop
        self._answer = answer
        self._on_close = on_close
        self._listener: socket.socket | None = None
        self.peers: dict[int, SocketPeer] = {}

    def listen(self, directory: str, name: str, *, users: Collection[int]) -> None:
        """Listen at a path for processes of these users.

        The mode of the socket keeps others away. The users are checked, too, for a process that has come to its path in
        another way.
        """
        listener = self._listener = listen(directory, name)
        self._loop.add_reader(listener.fileno(), lambda: self._accept(listener, users))

    def add(self, channel: socket.socket) -> None:
        """Hear a client that is connected already."""
        channel.setblocking(False)
        peer = self.peers[channel.fileno()] = SocketPeer(channel)
        self._loop.add_reader(channel.fileno(), lambda: self._hear(peer))

    def drop(self, peer: SocketPeer) -> None:
        """Close one connection."""
        fd = peer.channel.fileno()
        if self.peers.pop(fd, None) is not None:
            self._loop.remove_reader(fd)
            peer.channel.close()
            self._on_close(peer)

    def close(self) -> None:
        """Close the connections. The path of the socket stays."""
        channels = [peer.channel for peer in self.peers.values()]
        for opened in (*channels, *([self._listener] if self._listener is not None else [])):
            self._loop.remove_reader(opened.fileno())
            opened.close()
        self.peers = {}

    def _accept(self, listener: socket.socket, users: Collection[int]) -> None:
        try:
            channel, _ = listener.accept()
        except OSError:  # The client has gone again.
            return
        if user_of(channel) in users and len(self.peers) < _MOST_PEERS:
            self.add(channel)
        else:
            channel.close()

    def _hear(self, peer: SocketPeer) -> None:
        try:
            content, fds = receive(peer.channel)
        except BlockingIOError:
            return
        except OSError:
            content, fds = None, []
        if content is None:
            self.drop(peer)
            return
        request = SocketRequest(peer, content, fds)
        try:
            self._answer(request)
        except Exception as error:  # A bad request must not end the server.
            request.reply({"error": f"{type(error).__name__}: {error}"})
        finally:
            while request.fds:
                os.close(request.fds.pop())
