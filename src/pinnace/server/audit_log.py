"""The audit log: one JSON object per line, appended to a file that others may rotate."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

log = logging.getLogger(__name__)

STANDARD_OUTPUT = Path("-")


class AuditLog:
    """Lines to a file that only its owner can read, or to standard output for `-`. Those of one turn go together."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be written."""
        self._path = path
        self._lines: list[bytes] = []
        if path == STANDARD_OUTPUT:
            self._file = os.dup(sys.stdout.fileno())
        else:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: bytes) -> None:
        """Append a line, which has its line break. Trouble is logged: the request has happened all the same."""
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(line)

    def close(self) -> None:
        """Write what is left. Closing twice is harmless."""
        if self._file >= 0:
            self._flush()
            os.close(self._file)
            self._file = -1

    def _flush(self) -> None:
        data, self._lines = b"".join(self._lines), []
        if self._file < 0:
            return
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as problem:
            log.error("audit events are lost: %s cannot be written (%s)", self._path, problem.strerror)
