"""The user of a request, as far as authorization and admission read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Requester(Protocol):
    """The user that makes a request."""

    @property
    def name(self) -> str: ...
    @property
    def groups(self) -> tuple[str, ...]: ...
    @property
    def uid(self) -> str: ...
    @property
    def extra(self) -> Mapping[str, tuple[str, ...]]: ...
