"""The aggregated API servers behind a server, as its discovery and its forwarding see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pinnace.model.objects import Object
from pinnace.process.byte_streams import Duplex, ProxyResponse


class AggregatedBackend(Protocol):
    """One group version that an aggregated API server serves, behind an APIService or in this process."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...

    @property
    def unavailable_reason(self) -> str:
        """Why it is unavailable; empty if it is available."""

    @property
    def is_local(self) -> bool:
        """Whether it answers in this process: it reads no headers and sends none that belong to a connection."""

    @property
    def resources(self) -> Sequence[Object]:
        """The rows of its discovery page, as last seen."""

    @property
    def openapi_url(self) -> str:
        """The URL of its OpenAPI v3 document, from its index; empty if it has none."""

    async def openapi(self) -> tuple[bytes, str]:
        """Fetch that document as JSON, with its hash. Raise OSError or TimeoutError."""

    async def openapi_v2(self) -> tuple[bytes, str]:
        """Fetch its OpenAPI v2 document as JSON, with its hash: as last seen if that fails, empty if never seen."""

    async def connect(self) -> tuple[Duplex, str]:
        """Open a connection, and return it with the host name. Raise OSError or TimeoutError."""

    async def send(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, *, is_long: bool
    ) -> ProxyResponse:
        """Send a request. Raise OSError if it cannot be reached, and TimeoutError if it does not answer.

        Unless `is_long`, the whole exchange must end within the request timeout.
        """


class AggregatedBackends(Protocol):
    """The current backends; `revision` changes with them."""

    @property
    def revision(self) -> int: ...
    def find(self, group: str, version: str) -> AggregatedBackend | None: ...
    def backends(self) -> Iterable[AggregatedBackend]: ...

    def priorities(self, group: str, version: str) -> tuple[int, int] | None:
        """Return the priorities of a group and of its version; None if no APIService sets them."""


class NoBackends:
    """No aggregated API servers."""

    revision = 0

    def find(self, group: str, version: str) -> AggregatedBackend | None:
        return None

    def backends(self) -> Iterable[AggregatedBackend]:
        return ()

    def priorities(self, group: str, version: str) -> tuple[int, int] | None:
        return None
