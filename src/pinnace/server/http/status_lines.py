"""The beginnings of responses, which are the same for all responses of one second."""

from __future__ import annotations

import time
from email.utils import formatdate

from pinnace.server.http.messages import status_line


class StatusLines:
    """The first two lines of responses, status and date, made once per second."""

    __slots__ = ("_lines", "_until")

    def __init__(self) -> None:
        self._lines: dict[int, bytes] = {}
        self._until = 0.0

    def of(self, status: int) -> bytes:
        now = time.time()
        if now >= self._until or now < self._until - 1:
            self._until = float(int(now) + 1)
            self._lines.clear()
        lines = self._lines.get(status)
        if lines is None:
            date = formatdate(now, usegmt=True).encode()
            lines = self._lines[status] = b"%bDate: %b\r\n" % (status_line(status), date)
        return lines
