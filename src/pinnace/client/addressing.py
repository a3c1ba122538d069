"""The paths of a client's requests: of a kind, of one object, or of a subresource."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pinnace.client.exchange import Exchange
from pinnace.client.mapping import KindMapping, ServedKind
from pinnace.model import errors


class Addressing:
    """The state that the verbs of a `Client` share."""

    namespace: str
    """The namespace of namespaced objects that do not name one."""
    kinds: KindMapping
    _exchange: Exchange

    def _path(self, served: ServedKind, name: str, namespace: str, subresource: str) -> str:
        return served.path(namespace=namespace or self.namespace, name=name, subresource=subresource)

    @contextmanager
    def _forgetting_if_missing(self, served: ServedKind) -> Iterator[None]:
        """Forget the URL of a kind that is no longer served: its definition may come back under another."""
        try:
            yield
        except errors.NoSuchPath:
            self.kinds.forget(served.kind)
            raise
