"""A part of an extension that runs against a cluster: an operator or a scheduler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Any

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.reconcile.manager import Manager


class Extension(ABC):
    """`pinnace run` finds the one object of this type in a file."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The field manager of its writes, the source of its events and the name of its lease."""

    @abstractmethod
    def running(self, client: Client, **options: Any) -> AbstractAsyncContextManager[Manager]:
        """Run within a block."""

    def crds(self) -> list[Object]:
        """Return the CRDs that it installs."""
        return []
