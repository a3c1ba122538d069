"""A configuration file that takes effect again whenever it is saved. One with errors changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pinnace.process.clock import Clock
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.file_watch import Saves
from pinnace.schema.configuration.documents import read_file
from pinnace.schema.configuration.errors import ConfigurationError

log = logging.getLogger(__name__)


RETRY_SECONDS = 60.0
"""How long after a failure the same content is tried again: what it names may be there by then."""


class ReloadedFile:
    """Applies the content of a file whenever it changes."""

    def __init__(self, path: Path, apply: Callable[[bytes], NowOrLater[None]], clock: Clock, *, applied: bytes) -> None:
        """`apply` raises ConfigurationError, and changes nothing then. `applied` is in effect already."""
        self.path = path
        self.reloads: Counter[str] = Counter()
        """The reloads so far, by success and failure."""
        self.times: dict[str, float] = {}
        """When the last success and the last failure were."""
        self._apply = apply
        self._clock = clock
        self._applied = hash_of(applied)
        self._failed = ""
        """The hash of the content that cannot be used, or why the file cannot be read; empty after a success."""

    @classmethod
    def begin(cls, path: Path, apply: Callable[[bytes], None], clock: Clock) -> ReloadedFile:
        """Apply the present content, which must be usable."""
        content = read_file(path)
        apply(content)
        return cls(path, apply, clock, applied=content)

    @property
    def applied(self) -> str:
        """The hash of the content that is in effect."""
        return self._applied

    async def run(self) -> None:
        """Apply the file whenever it is saved, until cancelled."""
        with Saves() as saves:
            saves.watch([self.path])
            is_retry = False
            while True:
                await self.check(is_retry=is_retry)
                is_retry = True
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS if self._failed else None):
                        await saves.next()
                        is_retry = False

    async def check(self, *, is_retry: bool = False) -> None:
        """Apply the content if it has changed; in a retry also content that has failed before."""
        what = ""
        try:
            content = read_file(self.path)
            what = hash_of(content)
            if what == (self._failed or self._applied) and not (self._failed and is_retry):
                return  # Another file of the directory was saved.
            if (waiting := self._apply(content)) is not None:
                await waiting
        except ConfigurationError as error:
            what = what or str(error)
            if what == self._failed and not is_retry:
                return
            self._failed = what
            log.error("%s; the configuration stays as it was", error)
            self._count("failure")
        else:
            self._applied, self._failed = what, ""
            log.info("%s was saved: its configuration is in effect", self.path)
            self._count("success")

    def _count(self, status: str) -> None:
        self.reloads[status] += 1
        self.times[status] = self._clock.now().timestamp()


def hash_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
