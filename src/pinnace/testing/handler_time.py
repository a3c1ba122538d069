"""The test's time for handlers that call `datetime.now()` or `time.time()` instead of `ctx.now()`."""

from __future__ import annotations

import datetime as datetimes
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from pinnace.process.clock import Clock
from pinnace.sdk.operator.operator import Operator


class HandlerTime:
    """Replaces the clocks of the modules in which handlers are defined, until it is restored."""

    def __init__(self, clock: Clock) -> None:
        self._datetime = _virtual_datetime(clock)
        self._modules = {
            id(datetimes): _replace(datetimes, datetime=self._datetime),
            id(time): _replace(time, time=lambda: clock.now().timestamp()),
        }
        self._time_time = lambda: clock.now().timestamp()
        self._replaced: list[tuple[dict[str, Any], str, Any]] = []

    def enter(self, operator: Operator) -> None:
        """Replace `datetime`, `time` and their modules in the modules of an operator's handlers."""
        for names in modules_of(operator):
            for name, value in list(names.items()):
                virtual = self._virtual(value)
                if virtual is not None:
                    self._replaced.append((names, name, value))
                    names[name] = virtual

    def restore(self) -> None:
        for names, name, value in reversed(self._replaced):
            names[name] = value
        self._replaced.clear()

    def _virtual(self, value: Any) -> Any:
        if value is datetime:
            return self._datetime
        if value is time.time:
            return self._time_time
        return self._modules.get(id(value)) if isinstance(value, ModuleType) else None


def modules_of(operator: Operator) -> Iterable[dict[str, Any]]:
    """Return the names of each module in which a handler is defined."""
    declared = operator.declarations
    handlers = [*declared.reconciles, *declared.cleanups, *declared.timers, *declared.changes]
    functions: list[Callable[..., Any]] = [
        function.handler for function in (*handlers, *declared.fields, *declared.daemons)
    ]
    functions += [function.handler for function in declared.admission]
    namespace = {
        id(names): names for function in functions if (names := getattr(function, "__globals__", None)) is not None
    }
    return namespace.values()


def _replace(module: ModuleType, **names: Any) -> ModuleType:
    copy = ModuleType(module.__name__)
    copy.__dict__.update(vars(module))
    copy.__dict__.update(names)
    return copy


def _virtual_datetime(clock: Clock) -> type[datetime]:
    """Return a class that is `datetime` in every respect but the current time."""

    class AnyDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class VirtualDatetime(datetime, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: datetimes.tzinfo | None = None) -> Any:
            moment = clock.now()
            return moment.astimezone(tz) if tz is not None else moment.astimezone().replace(tzinfo=None)

        @classmethod
        def utcnow(cls) -> Any:
            return clock.now().astimezone(UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], Any]) -> Any:
            return handler(datetime)

    return VirtualDatetime
