"""The Kubernetes API as Python: every verb on every kind, over HTTP or within the process.

    async with connect() as client:                                  # pinnace.client.connect: the current kubeconfig
        pod = await client.get("v1/Pod", "web", namespace="default")
        async for deployment in client.each("apps/v1/Deployment"):
            ...
        await client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {}})
        site = await client.get(Website, "blog")                     # a CustomResource of the SDK
        await client.create(Deployment(...))                         # one of lightkube.resources

A kind is named as "apps/v1/Deployment", as a `Kind`, or by its three parts, and its objects are plain dicts; or it is a
class, and they are its instances. Discovery gives the URL of each kind. An error that the server answers is raised as
one of `pinnace.model.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Self

from pinnace.client.exchange import Exchange, Retries
from pinnace.client.mapping import KindMapping
from pinnace.client.rates import Rate, RateLimiter
from pinnace.client.streams import PodStreams
from pinnace.client.transport import Transport
from pinnace.client.waiting import ObjectWaits
from pinnace.client.writing import Propagation, WriteListener
from pinnace.process.clock import AlarmClock, SystemClock

__all__ = ["Client", "Propagation"]


class Client(ObjectWaits, PodStreams):
    """One user of one server. Closing it closes its transport."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str = "default",
        field_manager: str = "pinnace",
        user_agent: str = "",
        clock: AlarmClock | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.namespace = namespace
        self.field_manager = field_manager
        self.clock = clock or SystemClock()
        self._exchange = Exchange(
            transport,
            clock=self.clock,
            retries=retries or Retries(),
            user_agent=user_agent or field_manager,
        )
        self.kinds = KindMapping(self._exchange.read)
        self._listeners = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._exchange.transport.close()

    @property
    def host(self) -> str:
        """The host and port of the server; empty in the same process."""
        return getattr(self._exchange.transport, "host", "")

    @property
    def answers(self) -> Mapping[tuple[str, str], int]:
        """The number of requests by method and status; "<error>" if there was no answer."""
        return self._exchange.answers

    def telling(self, listener: WriteListener) -> Self:
        """Return a copy of this client that calls `listener` after each successful write."""
        twin = copy(self)
        twin._listeners = (*self._listeners, listener)
        return twin

    def fenced(self, check: Callable[[], None]) -> Self:
        """Return a copy of this client that calls `check` before each write; its error stops the write.

        The checks of this client come first.
        """
        twin = copy(self)
        twin._exchange = copy(self._exchange)
        twin._exchange.check_write = _both(self._exchange.check_write, check)
        return twin

    def over(self, transport: Transport) -> Self:
        """Return a copy of this client that sends its requests over another transport, to the same server."""
        twin = copy(self)
        twin._exchange = copy(self._exchange)
        twin._exchange.transport = transport
        return twin

    def once(self) -> Self:
        """Return a copy of this client that sends each request once: its caller repeats what has failed."""
        twin = copy(self)
        twin._exchange = copy(self._exchange)
        twin._exchange.retries = Retries(attempts=1)
        return twin

    def limited(self, rate: Rate) -> Self:
        """Return a copy of this client whose requests, except watches, wait until the rate allows them."""
        twin = copy(self)
        twin._exchange = copy(self._exchange)
        twin._exchange.limiter = RateLimiter(rate, self.clock)
        twin.kinds = KindMapping(twin._exchange.read)
        return twin


def _both(first: Callable[[], None] | None, second: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls one check after the other."""
    if first is None:
        return second
    check_first = first

    def check() -> None:
        check_first()
        second()

    return check
