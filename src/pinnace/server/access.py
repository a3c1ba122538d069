"""Authentication, impersonation and authorization, as the handler uses them."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from pinnace.auth.authentication.authenticators import Credentials
from pinnace.auth.authentication.impersonation import Impersonator
from pinnace.auth.authorization.authorizers import Authorizer
from pinnace.auth.users import User


class Identify(Protocol):
    def authenticate(self, credentials: Credentials) -> User | Awaitable[User]:
        """Return the user; anonymous without credentials. Raise Unauthorized for a bad credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControl:
    """The parts that decide who a client is and what it may do."""

    identify: Identify
    impersonator: Impersonator
    authorizer: Authorizer
