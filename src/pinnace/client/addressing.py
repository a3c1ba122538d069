"""Where a client's requests go: the path of a kind, of one object, or of what is below it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pinnace.client.exchange import Exchange
from pinnace.client.mapping import KindMapping, ServedKind
from pinnace.model import errors


class Addressing:
    """What the verbs of a `Client` share."""

    namespace: str
    """Where namespaced objects are looked for that do not say where they are."""
    kinds: KindMapping
    _exchange: Exchange

    def _path(self, served: ServedKind, name: str, namespace: str, subresource: str) -> str:
        return served.path(namespace=namespace or self.namespace, name=name, subresource=subresource)

    @contextmanager
    def _served_there(self, served: ServedKind) -> Iterator[None]:
        """A URL that serves nothing any more is forgotten: its definition may come back under another."""
        try:
            yield
        except errors.NoSuchPath:
            self.kinds.forget(served.kind)
            raise
