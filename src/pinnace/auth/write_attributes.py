"""The part of a write that the checks of this folder read."""

from __future__ import annotations

from typing import Protocol

from pinnace.model.objects import Object
from pinnace.model.requester import Requester
from pinnace.model.resources import Resource


class WriteAttributes(Protocol):
    """One write, as admission passes it."""

    @property
    def operation(self) -> str: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def subresource(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def new(self) -> Object | None: ...
    @property
    def old(self) -> Object | None: ...
    @property
    def user(self) -> Requester: ...
