"""The gate every write passes: first those who may change it, later those who may only refuse it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pinnace.model.objects import Object
from pinnace.model.resources import Resource


class Requester(Protocol):
    """Who makes the write."""

    @property
    def name(self) -> str: ...
    @property
    def groups(self) -> tuple[str, ...]: ...
    @property
    def uid(self) -> str: ...
    @property
    def extra(self) -> Mapping[str, tuple[str, ...]]: ...


@dataclass(slots=True, eq=False)
class Review:
    """One write, as the gates see it. A mutator changes `new`; nobody else does."""

    operation: str  # CREATE, UPDATE, DELETE or CONNECT.
    resource: Resource
    subresource: str
    namespace: str
    name: str
    new: Object | None
    old: Object | None
    user: Requester
    is_dry_run: bool = False
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Mutator(Protocol):
    async def mutate(self, review: Review) -> None:
        """Change `review.new` in place, or refuse by raising an ApiError."""


class Validator(Protocol):
    async def validate(self, review: Review) -> None:
        """Refuse by raising an ApiError."""


class AdmissionChain:
    """Mutators in order, then (after validation of the object) validators in order."""

    def __init__(self, mutators: Sequence[Mutator] = (), validators: Sequence[Validator] = ()) -> None:
        self._mutators = tuple(mutators)
        self._validators = tuple(validators)

    async def mutate(self, review: Review) -> None:
        for mutator in self._mutators:
            await mutator.mutate(review)

    async def validate(self, review: Review) -> None:
        for validator in self._validators:
            await validator.validate(review)
