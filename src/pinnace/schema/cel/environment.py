"""The functions that an expression may use: those of Kubernetes 1.36, and more where a caller asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from pinnace.schema.cel.library.amounts import AMOUNTS
from pinnace.schema.cel.library.authorizer import AUTHORIZERS, JSON_PATCH
from pinnace.schema.cel.library.formats import FORMATS
from pinnace.schema.cel.library.lists import LISTS
from pinnace.schema.cel.library.network import NETWORK
from pinnace.schema.cel.library.optional import OPTIONALS
from pinnace.schema.cel.library.standard import STANDARD
from pinnace.schema.cel.library.strings import STRINGS
from pinnace.schema.cel.overloads import Function, Library, combine

_LIBRARIES: tuple[Library, ...] = (STANDARD, NETWORK, STRINGS, LISTS, AUTHORIZERS, OPTIONALS, AMOUNTS, FORMATS)


@dataclass(frozen=True)
class Environment:
    """A set of functions. With `allow_bind`, cel.bind(name, value, result) exists, too."""

    libraries: tuple[Library, ...] = field(default=_LIBRARIES, repr=False)
    allow_bind: bool = False

    @cached_property
    def functions(self) -> dict[str, Function]:
        return combine(self.libraries)


KUBERNETES = Environment()
# Mutating policies may also escape keys of JSON patches.
MUTATION = Environment((*_LIBRARIES, JSON_PATCH))
EXTENDED = Environment((*_LIBRARIES, JSON_PATCH), allow_bind=True)
