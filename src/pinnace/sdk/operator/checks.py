"""Refuses what an author has written by mistake, where it is written: a kind that is none, a function that cannot be
called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.sdk.operator.declarations import Conversion
from pinnace.sdk.resources.custom_resource import AnyResource
from pinnace.sdk.resources.schemas import NotStructural

OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")

_NAME = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")


def check_operator_name(name: str) -> None:
    """Leases, Services and Deployments are called so: it must be a name that Kubernetes takes for each."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(f"{name!r} cannot be an operator's name: write small letters, digits and -, as in my-operator")


def check_kind(kind: KindLike, decorator: str) -> None:
    """Raises TypeError or ValueError if this is no kind. `decorator` is what was to be told one."""
    if inspect.isroutine(kind):
        raise TypeError(f"@operator.{decorator} needs a kind: write @operator.{decorator}(Website) above {_said(kind)}")
    try:
        kind_from(kind)
    except (TypeError, ValueError) as error:
        raise type(error)(f"operator.{decorator}: {error}") from None


def check_kinds(kinds: Iterable[KindLike], decorator: str, option: str) -> None:
    """The same of a list of kinds."""
    if isinstance(kinds, str | type):
        shown = kinds.__name__ if isinstance(kinds, type) else repr(kinds)
        raise TypeError(f"operator.{decorator}: {option} is a list of kinds: write {option}=[{shown}]")
    for kind in kinds:
        check_kind(kind, f"{decorator}({option}=...)")


def check_watches(watches: Mapping[Any, Any] | None, decorator: str) -> None:
    """Kinds, each with a function that says whom a change concerns."""
    if watches is None:
        return
    if not isinstance(watches, Mapping) or not all(callable(to_keys) for to_keys in watches.values()):
        raise TypeError(
            f"operator.{decorator}: watches says for each kind whom a change concerns: "
            'write watches={"v1/Secret": lambda secret: [Key(namespace, name)]}'
        )
    check_kinds(list(watches), decorator, "watches")


def check_operations(operations: Iterable[str], decorator: str) -> None:
    """Raises ValueError for what no webhook is asked about."""
    odd = [operations] if isinstance(operations, str) else [one for one in operations if one not in OPERATIONS]
    if odd:
        raise ValueError(f"operator.{decorator}: operations={odd[0]!r}: write a list of {', '.join(OPERATIONS)}")


def check_handler(handler: Callable[..., Any], decorator: str, *arguments: str) -> None:
    """Raises TypeError for a function that wants more than it is given."""
    if not callable(handler):
        raise TypeError(f"@operator.{decorator} stands above a function, not {handler!r}")
    given = f"{_said(handler)}({', '.join(arguments)})"
    wanted = 0
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise TypeError(f"@operator.{decorator} calls {given}; nobody gives it {parameter.name}=")
        wanted += parameter.kind is not parameter.VAR_KEYWORD
    if wanted > len(arguments):
        raise TypeError(f"@operator.{decorator} calls {given}; it wants {wanted} arguments")


def check_conversions(conversions: Sequence[Conversion], versions: Sequence[type[AnyResource]]) -> None:
    """Raises NotStructural unless every version of a kind can be made of every other, by some steps."""
    for start in versions:
        reached = [start]
        for one in reached:
            reached += [step.new for step in conversions if step.old is one and step.new not in reached]
        missing = next((version for version in versions if version not in reached), None)
        if missing is not None:
            raise NotStructural(
                start.declared.kind.name,
                f"nobody converts {start.__name__} to {missing.__name__}: "
                f"write a function under @operator.convert({start.__name__}, {missing.__name__})",
            )


def _said(function: Any) -> str:
    return str(getattr(function, "__name__", repr(function)))
