"""Divides a limited number of connections between clients, so that one client cannot take those of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class Shares(Generic[Connection]):
    """The connections of each client. While there is room a client may have any number.

    When all are taken, the client with the most loses its newest for one of a client that has fewer.
    """

    def __init__(self, most: int, close: Callable[[Connection], object]) -> None:
        """`close` ends a connection of a client that has too many; it may call `remove`."""
        self._most = most
        self._close = close
        self._clients: dict[str, dict[Connection, None]] = {}
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def make_room(self, client: str) -> bool:
        """Return whether a client may have another connection; end one of another client if that is due."""
        if self._number < self._most:
            return True
        largest = max(self._clients, key=lambda known: len(self._clients[known]))
        if len(self._clients[largest]) <= len(self._clients.get(client, ())) + 1:
            return False
        connection = next(reversed(self._clients[largest]))
        self.remove(largest, connection)
        self._close(connection)
        return True

    def add(self, client: str, connection: Connection) -> None:
        self._clients.setdefault(client, {})[connection] = None
        self._number += 1

    def remove(self, client: str, connection: Connection) -> None:
        """Forget a connection that has ended, if it is known."""
        own = self._clients.get(client, {})
        if connection in own:
            del own[connection]
            self._number -= 1
            if not own:
                del self._clients[client]

    def all(self) -> list[Connection]:
        return [connection for own in self._clients.values() for connection in own]
