"""Flags that several commands share, or that belong together: a command receives what a function makes of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

Command = Callable[..., None]


def with_flags(parameter: str, build: Callable[..., object]) -> Callable[[Command], Command]:
    """Replace a parameter of a command by the flags that are the parameters of `build`, which returns its value."""
    flags = tuple(inspect.signature(build, eval_str=True).parameters.values())

    def replace_parameter(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            given[parameter] = build(**{flag.name: given.pop(flag.name) for flag in flags})
            command(**given)

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for declared in signature.parameters.values():
            own = (declared.replace(kind=inspect.Parameter.KEYWORD_ONLY),)
            parameters += flags if declared.name == parameter else own
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return replace_parameter
