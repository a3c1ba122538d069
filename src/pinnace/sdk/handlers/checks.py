"""Checks of the arguments of decorators, so that a mistake is reported at the line that contains it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.sdk.handlers.handlers import ConversionHandler
from pinnace.sdk.resources.custom_resource import AnyResource, is_resource_class
from pinnace.sdk.resources.schemas import NotStructural

OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
BACKEND_METHODS = ("get", "list")

_NAME = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")


def check_operator_name(name: str) -> None:
    """Raise ValueError unless Leases, Services and Deployments can all have this name."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(f"{name!r} cannot be an operator's name: write small letters, digits and -, as in my-operator")


def check_kind(kind: KindLike, decorator: str) -> None:
    """Raise TypeError or ValueError if the argument of `decorator` is not a kind."""
    if inspect.isroutine(kind):
        raise TypeError(
            f"@operator.{decorator} needs a kind: write @operator.{decorator}(Website) above {_name_of(kind)}"
        )
    try:
        kind_from(kind)
    except (TypeError, ValueError) as error:
        raise type(error)(f"operator.{decorator}: {error}") from None


def check_kinds(kinds: Iterable[KindLike], decorator: str, option: str) -> None:
    """Check each kind of a list."""
    if isinstance(kinds, str | type):
        written = kinds.__name__ if isinstance(kinds, type) else repr(kinds)
        raise TypeError(f"operator.{decorator}: {option} is a list of kinds: write {option}=[{written}]")
    for kind in kinds:
        check_kind(kind, f"{decorator}({option}=...)")


def check_watches(watches: Mapping[Any, Any] | None, decorator: str) -> None:
    """Raise TypeError unless `watches` maps kinds to functions that return the keys to reconcile."""
    if watches is None:
        return
    if not isinstance(watches, Mapping) or not all(callable(to_keys) for to_keys in watches.values()):
        raise TypeError(
            f"operator.{decorator}: watches maps each kind to a function that returns the keys to reconcile: "
            'write watches={"v1/Secret": lambda secret: [Key(namespace, name)]}'
        )
    check_kinds(list(watches), decorator, "watches")


def check_operations(operations: Iterable[str], decorator: str) -> None:
    """Raise ValueError for an operation that admission webhooks do not have."""
    unknown = [operations] if isinstance(operations, str) else [one for one in operations if one not in OPERATIONS]
    if unknown:
        raise ValueError(f"operator.{decorator}: operations={unknown[0]!r}: write a list of {', '.join(OPERATIONS)}")


def check_handler(handler: Callable[..., Any], decorator: str, *arguments: str) -> None:
    """Raise TypeError for a function that requires more than these arguments."""
    if not callable(handler):
        raise TypeError(f"@operator.{decorator} stands above a function, not {handler!r}")
    given = f"{_name_of(handler)}({', '.join(arguments)})"
    required = 0
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise TypeError(f"@operator.{decorator} calls {given}, without {parameter.name}=: give it a default")
        required += parameter.kind is not parameter.VAR_KEYWORD
    if required > len(arguments):
        raise TypeError(f"@operator.{decorator} calls {given}; the function requires {required} arguments")


def check_served(kind: Any, backend: Any, refresh: float) -> None:
    """Raise TypeError if the backend lacks a method or the kind is not a class, ValueError for a bad `refresh`."""
    if not is_resource_class(kind):
        raise TypeError(f"{kind!r} cannot be served: write a CustomResource class with a group and a version")
    missing = [name for name in BACKEND_METHODS if not callable(getattr(backend, name, None))]
    if missing:
        name = backend.__name__ if isinstance(backend, type) else type(backend).__name__
        raise TypeError(f"{name} cannot serve {kind.__name__}: it has no {' and no '.join(missing)}")
    if kind.declared.scale is not None:
        raise TypeError(f"{kind.__name__} cannot be scaled: an API of your own has no /scale; change its spec instead")
    if refresh < 0:
        raise ValueError(f"a backend cannot be refreshed every {refresh} seconds: write 0 or more")


def check_conversions(conversions: Sequence[ConversionHandler], versions: Sequence[type[AnyResource]]) -> None:
    """Raise NotStructural unless every version of a kind can be converted to every other, in one or more steps."""
    for start in versions:
        reached = [start]
        for one in reached:
            reached += [step.new for step in conversions if step.old is one and step.new not in reached]
        missing = next((version for version in versions if version not in reached), None)
        if missing is not None:
            raise NotStructural(
                start.declared.kind.name,
                f"no function converts {start.__name__} to {missing.__name__}: "
                f"write one under @operator.convert({start.__name__}, {missing.__name__})",
            )


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", repr(function)))
