"""Events outside of the cluster that cause reconciles: an async generator, or a webhook of the operator's own."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pinnace.client.mapping import kind_from
from pinnace.model.objects import Key
from pinnace.process.backoff import Backoff
from pinnace.process.tasks import contain
from pinnace.reconcile.controller import Controller
from pinnace.sdk.handlers.calls import call_in_thread
from pinnace.sdk.handlers.handlers import ExternalSource
from pinnace.sdk.operator.runtime import OperatorRuntime

_BACKOFF = Backoff(first=1.0, longest=60.0)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRequest:
    """A request to a webhook of `@operator.source`. The function checks its signature: anyone may have sent it."""

    headers: Mapping[str, str]
    """With small letters."""
    query: Mapping[str, str]
    body: bytes


Hook = Callable[[HookRequest], Awaitable[int]]
"""Handles a request, and returns the number of objects to reconcile."""


class SourceReader:
    """Enqueues the keys that a source names in the reconcile controllers of its kind."""

    def __init__(self, runtime: OperatorRuntime, source: ExternalSource, controllers: list[Controller]) -> None:
        self._runtime = runtime
        self._source = source
        self._controllers = controllers
        self.name = str(getattr(source.function, "__name__", "source"))
        self._failures = 0
        """The failures since its last key."""

    async def run(self) -> None:
        """Read the async generator until it ends; after an error it is started again, with growing delays."""
        clock = self._runtime.manager.client.clock
        while True:
            try:
                await contain(self._read)
            except Exception:
                self._failures += 1
                delay = _BACKOFF.delay(self._failures)
                _log.exception("the source %s failed, again in %.1f s", self.name, delay)
                await clock.sleep(delay)
            else:
                _log.info("the source %s has ended", self.name)
                return

    async def _read(self) -> None:
        events = self._source.function(*self._arguments(self._runtime.shared))
        async with aclosing(events):
            async for key in events:
                self._enqueue([key])
                self._failures = 0

    async def receive(self, request: HookRequest) -> int:
        """Call the function of a webhook, and reconcile the objects that it names."""
        threads, function = self._runtime.threads, self._source.function
        keys = list(await call_in_thread(threads, function, request, self._runtime.shared) or ())
        self._enqueue(keys)
        return len(keys)

    def _enqueue(self, keys: Iterable[Any]) -> None:
        for key in keys:
            if not isinstance(key, Key):
                raise TypeError(f"{self.name} names {key!r}: a source yields keys, Key(namespace, name)")
            for controller in self._controllers:
                controller.enqueue(key, f"source {self.name}")

    def _arguments(self, *given: Any) -> tuple[Any, ...]:
        return given[: len(inspect.signature(self._source.function).parameters)]


def sources_of(runtime: OperatorRuntime, controllers: list[Controller]) -> list[SourceReader]:
    """Return the sources of an operator that are async generators; each is a part of its manager."""
    return [_source(runtime, source, controllers) for source in runtime.declarations.sources if not source.path]


def hooks_of(runtime: OperatorRuntime, controllers: list[Controller]) -> dict[str, Hook]:
    """Return the webhooks of an operator's sources, by their path."""
    return {
        source.path: _source(runtime, source, controllers).receive
        for source in runtime.declarations.sources
        if source.path
    }


def _source(runtime: OperatorRuntime, source: ExternalSource, controllers: list[Controller]) -> SourceReader:
    concerned = [controller for controller in controllers if controller.kind == kind_from(source.kind)]
    return SourceReader(runtime, source, concerned)
