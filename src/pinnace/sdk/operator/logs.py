"""The log records of an operator, as text or as one JSON object per line, with the object and handler of each."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import orjson

LogFormat = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "object", "handler"}


class HandledObject(NamedTuple):
    """The object that a handler is called for, and the handler's name."""

    object: str
    handler: str


HANDLED: ContextVar[HandledObject | None] = ContextVar("the handled object", default=None)
"""Set while a handler runs: every record that it logs, through any logger, has the object and the handler."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line: time, level, logger, message, object, handler, and fields given by `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        handled = HANDLED.get()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("object", "handler"):
            value = getattr(record, name, "") or (getattr(handled, name) if handled is not None else "")
            if value:
                line[name] = value
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def configure_logs(*, level: str = "info", form: LogFormat = "text") -> None:
    """Log to standard error, unless the process has configured logging already. Raise ValueError for another level."""
    if level not in LEVELS:
        raise ValueError(f"there is no log level {level}: choose from {', '.join(LEVELS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
