"""Removal of directories that containers have filled, beside all other work.

A directory is renamed first, so that its pod is gone at once. Its files are removed by one thread, however many they
are. An agent that ends leaves the rest to the next one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pinnace.node.machine.file_trees import RemovalStopped
from pinnace.node.machine.mapped_root import remove_tree

_log = logging.getLogger(__name__)


class Removals:
    """The directories below `place` that are removed. `close` it: the thread ends at the next file."""

    def __init__(self, place: Path) -> None:
        """`place` is on the file system of the directories, and belongs to this alone."""
        self._place = place
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="removals")
        self._is_stopped = False
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in sorted(place.iterdir()):
            self._thread.submit(self._remove, left)

    def add(self, directory: Path) -> None:
        """Take a directory away, and remove it in the background."""
        taken = self._place / f"{directory.name[:100]}-{secrets.token_hex(8)}"
        try:
            os.rename(directory, taken)
        except FileNotFoundError:
            return
        except OSError:  # A full disk may have no room for the new name.
            taken = directory
        self._thread.submit(self._remove, taken)

    async def drain(self) -> None:
        """Wait until all directories are removed that were added before."""
        last: Future[None] = self._thread.submit(lambda: None)
        await asyncio.wrap_future(last)

    async def close(self) -> None:
        self._is_stopped = True
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    def _remove(self, directory: Path) -> None:
        try:
            remove_tree(directory, is_stopped=lambda: self._is_stopped)
        except RemovalStopped:
            return
        except OSError as error:
            _log.warning("%s is left until the next start of the agent: %s", directory, error)
