"""Checks of the arguments of decorators, so that a mistake is reported at the line that contains it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from pinnace.client.mapping import KindLike, kind_from
from pinnace.sdk.handlers.calls import is_async
from pinnace.sdk.handlers.handlers import ConversionHandler, ReconcileHandler
from pinnace.sdk.handlers.names import check_annotation, check_known
from pinnace.sdk.handlers.options import Select
from pinnace.sdk.resources.custom_resource import AnyResource, is_resource_class
from pinnace.sdk.resources.models import wire_name
from pinnace.sdk.resources.schemas import NotStructural
from pinnace.sdk.resources.spelling import nearest

OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
BACKEND_METHODS = ("get", "list")
OWN_PATHS = ("/metrics", "/healthz", "/readyz")

_ROLES = {"context": "ctx"}
"""Other names of arguments."""
_TYPED_ROLES = ("ctx", "admission")
"""Arguments with a type of their own: a parameter of this name expects it, also in a handler that does not get it."""

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
    check_known(kind, decorator)


def check_kinds(kinds: Iterable[KindLike | Select], decorator: str, option: str) -> None:
    """Check each kind of a list."""
    if isinstance(kinds, str | type | Select):
        written = kinds.__name__ if isinstance(kinds, type) else repr(kinds)
        raise TypeError(f"operator.{decorator}: {option} is a list of kinds: write {option}=[{written}]")
    for kind in kinds:
        check_kind(kind.kind if isinstance(kind, Select) else kind, f"{decorator}({option}=...)")


def check_watches(watches: Mapping[Any, Any] | None, decorator: str) -> None:
    """Raise TypeError unless `watches` maps kinds to functions that return the keys to reconcile."""
    if watches is None:
        return
    if not isinstance(watches, Mapping) or not all(callable(to_keys) for to_keys in watches.values()):
        raise TypeError(
            f"operator.{decorator}: watches maps each kind to a function that returns the keys to reconcile: "
            'write watches={"v1/Secret": lambda secret: [Key(namespace, name)]}'
        )
    for to_keys in watches.values():
        check_waits_for_nothing(to_keys, decorator)
    check_kinds(list(watches), decorator, "watches")


def check_waits_for_nothing(function: Callable[..., Any], decorator: str) -> None:
    """Raise TypeError for an `async def` function where the result is needed at once."""
    if is_async(function):
        raise TypeError(
            f"operator.{decorator}: {_name_of(function)} is called for each change and must not wait: write def "
            "instead of async def, and read other objects from `Caches`"
        )


def check_prune(handler: ReconcileHandler, others: Iterable[ReconcileHandler]) -> None:
    """Raise ValueError if one of two handlers would delete what the other applies for the same objects."""
    if handler.prune and not handler.owns:
        raise ValueError("operator.reconcile(prune=True) deletes objects of owned kinds: name them in owns=[...]")
    owned = {kind_from(select.kind) for select in handler.owns}
    for other in others:
        both = owned & {kind_from(select.kind) for select in other.owns}
        if both and kind_from(other.kind) == kind_from(handler.kind) and (handler.prune or other.prune):
            raise ValueError(
                f"{handler.name} and {other.name} both own {min(both).name}, and prune=True of one would delete what "
                "the other applies: do both in one function"
            )


def check_operations(operations: Iterable[str], decorator: str) -> None:
    """Raise ValueError for an operation that admission webhooks do not have."""
    unknown = (
        [operations]
        if isinstance(operations, str)
        else [operation for operation in operations if operation not in OPERATIONS]
    )
    if unknown:
        raise ValueError(f"operator.{decorator}: operations={unknown[0]!r}: write a list of {', '.join(OPERATIONS)}")


def check_handler(handler: Callable[..., Any], decorator: str, *arguments: str, kind: KindLike | None = None) -> None:
    """Raise TypeError for a function that cannot be called with these arguments, or that takes them for others.

    The object may have any name. The other parameters must not have the name of an argument in another place, and
    annotations must name existing classes: the object's its kind, the context's `Context`.
    """
    if not callable(handler):
        raise TypeError(f"@operator.{decorator} stands above a function, not {handler!r}")
    given = f"{_name_of(handler)}({', '.join(arguments)})"
    parameters = list(inspect.signature(handler).parameters.values())
    required = 0
    for parameter in parameters:
        if parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise TypeError(f"@operator.{decorator} calls {given}, without {parameter.name}=: give it a default")
        required += parameter.kind is not parameter.VAR_KEYWORD
    if required > len(arguments):
        raise TypeError(f"@operator.{decorator} calls {given}; the function requires {required} arguments")
    for parameter, argument in zip(parameters, arguments, strict=False):
        role = _ROLES.get(parameter.name, parameter.name)
        is_taken = role in arguments or role in _TYPED_ROLES
        if role != argument and is_taken and parameter.kind is not parameter.VAR_POSITIONAL:
            raise TypeError(
                f"@operator.{decorator} calls {given}; the parameter {parameter.name} of the function would get the "
                f"argument {argument}: write {given}"
            )
        check_annotation(handler, decorator, parameter, argument, kind)


def check_async(handler: Callable[..., Any], decorator: str) -> None:
    """Raise TypeError for a function that is not `async def`."""
    if not is_async(handler):
        raise TypeError(
            f"@operator.{decorator} stands above an `async def` function, since it must be possible to cancel it: "
            f"write async def {_name_of(handler)}"
        )


def check_source(function: Callable[..., Any], path: str) -> None:
    """Raise TypeError unless a source is an async generator, or with a path a function of a request."""
    if path:
        if not path.startswith("/") or path in OWN_PATHS:
            raise ValueError(f"operator.source: path={path!r}: write a path of its own, such as /hooks/git")
        check_handler(function, "source", "request", "shared")
    elif not inspect.isasyncgenfunction(function):
        raise TypeError(
            f"@operator.source stands above an async generator: `async def {_name_of(function)}()` that yields "
            "Key(namespace, name); give path= for a webhook"
        )
    else:
        check_handler(function, "source", "shared")


def check_field(kind: KindLike, field: str) -> tuple[str, ...]:
    """Return the path of a field as the names on the wire. Raise ValueError if the class has no such field."""
    path = tuple(part for part in field.split(".") if part)
    if not path or any(not part.isidentifier() for part in path):
        raise ValueError(f"operator.on_field: {field!r} is no field: write a path such as spec.storage")
    return wire_path(kind, path, field) if is_resource_class(kind) else path


def wire_path(kind: Any, path: tuple[str, ...], field: str) -> tuple[str, ...]:
    """Return a path through the fields of a class, by their names in Python or on the wire."""
    steps: list[str] = []
    model: Any = kind
    for part in path:
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return (*steps, *path[len(steps) :])  # A dict or a list: its content has no fixed fields.
        fields = {
            alias: field for name, field in model.model_fields.items() for alias in (name, wire_name(name, field))
        }
        if part not in fields:
            raise ValueError(
                f"operator.on_field: {kind.__name__} has no field {field}: {model.__name__} has no "
                f"{part}{nearest(part, fields)}"
            )
        steps.append(wire_name(part, fields[part]))
        model = _model_of(fields[part].annotation)
    return tuple(steps)


def _model_of(annotation: Any) -> Any:
    """Return the class of a field that may be None."""
    options = [argument for argument in get_args(annotation) if argument is not type(None)]
    return options[0] if len(options) == 1 and not isinstance(annotation, type) else annotation


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
        for version in reached:
            reached += [step.new for step in conversions if step.old is version and step.new not in reached]
        missing = next((version for version in versions if version not in reached), None)
        if missing is not None:
            raise NotStructural(
                start.declared.kind.name,
                f"no function converts {start.__name__} to {missing.__name__}: "
                f"write one under @operator.convert({start.__name__}, {missing.__name__})",
            )


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", repr(function)))
