"""The informers of certificates.k8s.io, opened when the first pod of the node needs one."""

from __future__ import annotations

import asyncio
from typing import Generic, Unpack, cast

from pinnace.client.mapping import NoSuchKind
from pinnace.client.reading import Selection
from pinnace.model.objects import Kind, TypedObject
from pinnace.reconcile.informer import Handler, Informer
from pinnace.reconcile.manager import Manager

_VERSIONS = ("v1", "v1beta1")
_SYNC_SECONDS = 10.0


class SourceMissing(ValueError):
    """A source of a projected volume has no content yet, or never will."""


class CertificateKind(Generic[TypedObject]):
    """One kind in the best version that the server has. Most nodes never need its watch."""

    def __init__(
        self,
        manager: Manager,
        name: str,
        *,
        handler: Handler[TypedObject] | None = None,
        **selection: Unpack[Selection],
    ) -> None:
        """`handler` is called for each change once the informer is open."""
        self._manager = manager
        self._name = name
        self._handler = handler
        self._selection = selection
        self._opening = asyncio.Lock()
        self._informer: Informer[TypedObject] | None = None

    async def kind(self) -> Kind:
        """Return the kind in the best served version. Raise SourceMissing."""
        for version in _VERSIONS:
            try:
                return (await self._manager.client.kinds.find(Kind("certificates.k8s.io", version, self._name))).kind
            except NoSuchKind:
                continue
        raise SourceMissing(f"the API server does not serve {self._name}")

    async def informer(self) -> Informer[TypedObject]:
        """Return the informer with a full cache. Raise SourceMissing."""
        async with self._opening:
            informer = self._informer
            if informer is None:
                opened = self._manager.informer(await self.kind(), **self._selection)
                self._informer = informer = cast("Informer[TypedObject]", opened)
                if self._handler is not None:
                    informer.on_change(self._handler)
            if not informer.is_synced:
                try:
                    async with asyncio.timeout(_SYNC_SECONDS):
                        await informer.synced()
                except TimeoutError:
                    raise SourceMissing(f"{self._name} informer has not yet synced") from None
        return informer
