"""The log records of an operator, as text or as one JSON object per line, with the object and handler of each."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import orjson

LogFormat = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")

_OPTIONS = ("exc_info", "stack_info", "extra")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "object",
    "handler",
    "fields",
    "fields_text",
}


class HandledObject(NamedTuple):
    """The object that a handler is called for, and the handler's name."""

    object: str
    handler: str


HANDLED: ContextVar[HandledObject | None] = ContextVar("the handled object", default=None)
"""Set while a handler runs: every record that it logs, through any logger, has the object and the handler."""


class Log(logging.LoggerAdapter[logging.Logger]):
    """`ctx.log`: a logger whose methods take fields: `ctx.log.info("reconciled", ready=2)`.

    In text they follow the message, as ready=2; in JSON they are fields of the line. Each record names the object.
    """

    def debug(self, msg: object, /, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        self._write(logging.DEBUG, msg, args, kwargs)

    def info(self, msg: object, /, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        self._write(logging.INFO, msg, args, kwargs)

    def warning(self, msg: object, /, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        self._write(logging.WARNING, msg, args, kwargs)

    def error(self, msg: object, /, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        self._write(logging.ERROR, msg, args, kwargs)

    def critical(self, msg: object, /, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        self._write(logging.CRITICAL, msg, args, kwargs)

    def exception(self, msg: object, /, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        self._write(logging.ERROR, msg, args, {"exc_info": True, **kwargs})

    def log(self, level: int, msg: object, /, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        self._write(level, msg, args, kwargs)

    def _write(self, level: int, msg: object, args: tuple[object, ...], kwargs: dict[str, Any]) -> None:
        if not self.isEnabledFor(level):
            return
        given = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
        depth = kwargs.pop("stacklevel", 1) + 2  # The record names the place of the author's call.
        text = "".join(f" {name}={_in_text(value)}" for name, value in kwargs.items())
        about = dict(self.extra or {})
        given["extra"] = {**about, **(given.get("extra") or {}), "fields": kwargs, "fields_text": text}
        suffix = text.replace("%", "%%") if args else text
        self.logger.log(level, f"{about.get('object')}: {msg}{suffix}", *args, stacklevel=depth, **given)


def _in_text(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else orjson.dumps(text).decode()


class JsonFormatter(logging.Formatter):
    """Formats a record as one line: time, level, logger, message, object, handler, and the fields of the call.

    A field with one of these names, such as `logger`, gets a _ at the end.
    """

    def format(self, record: logging.LogRecord) -> str:
        handled = HANDLED.get()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage().removesuffix(getattr(record, "fields_text", "")),
        }
        for name in ("object", "handler"):
            value = getattr(record, name, "") or (getattr(handled, name) if handled is not None else "")
            if value:
                line[name] = value
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        for name, value in getattr(record, "fields", {}).items():
            line[f"{name}_" if name in line else name] = value
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
