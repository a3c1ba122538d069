"""Bearer tokens: whose is this one, asked of everyone who issues or knows some."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from pinnace.auth.users import User, authenticated
from pinnace.schema.text_cache import cache_short_texts


class BadToken(Exception):
    """This token is not to be trusted. The message says why and never quotes it."""


class TokenFileError(Exception):
    """The file of tokens cannot be used. The message names the line and never quotes it."""


class Bearer(NamedTuple):
    """The user of a token, and the requested audiences that it is valid for."""

    user: User
    audiences: tuple[str, ...] = ()


class Tokens(Protocol):
    def find(self, token: str, audiences: Sequence[str] = ()) -> Bearer | Awaitable[Bearer | None] | None:
        """Return the user of the token; None if it has another form. Raise BadToken if it may not be used.

        Without `audiences`, it must be good for this API.
        """


class StaticTokens:
    """Tokens known in advance, found by their hashes: how long that takes gives none away.

    They are for this API, whose audiences are `own_audiences`.
    """

    def __init__(self, tokens: Mapping[str, User], *, own_audiences: Sequence[str] = ()) -> None:
        own = tuple(own_audiences)
        self._users = {token_hash(token): Bearer(authenticated(user), own) for token, user in tokens.items()}

    def find(self, token: str, audiences: Sequence[str] = ()) -> Bearer | None:
        found = self._users.get(token_hash(token))
        return Bearer(found.user) if found is not None and audiences else found


class AnyOf:
    """Asks each in turn; the first who knows the token answers. `own_audiences` are those of this API."""

    def __init__(self, issuers: Sequence[Tokens], *, own_audiences: Sequence[str]) -> None:
        self._issuers = tuple(issuers)
        self._own = tuple(own_audiences)

    def find(self, token: str, audiences: Sequence[str] = ()) -> Bearer | Awaitable[Bearer | None] | None:
        errs: list[str] = []
        for index, issuer in enumerate(self._issuers):
            try:
                found = issuer.find(token, audiences)
            except BadToken as error:
                errs.append(str(error))
                continue
            if isinstance(found, Bearer):
                return found if found.audiences else self._good_for(found, audiences)
            if found is not None:
                return self._rest(token, audiences, found, index, errs)
        if errs:
            raise BadToken(f"[invalid bearer token, {', '.join(errs)}]")
        return None

    async def _rest(
        self, token: str, audiences: Sequence[str], pending: Awaitable[Bearer | None], index: int, errs: list[str]
    ) -> Bearer | None:
        try:
            bearer = await pending
            if bearer is not None:
                return self._good_for(bearer, audiences)
        except BadToken as error:
            errs.append(str(error))
        for issuer in self._issuers[index + 1 :]:
            try:
                found = issuer.find(token, audiences)
                bearer = found if found is None or isinstance(found, Bearer) else await found
            except BadToken as error:
                errs.append(str(error))
                continue
            if bearer is not None:
                return self._good_for(bearer, audiences)
        if errs:
            raise BadToken(f"[invalid bearer token, {', '.join(errs)}]")
        return None

    def _good_for(self, bearer: Bearer, audiences: Sequence[str]) -> Bearer | None:
        """Authenticators without audiences are good for this API's own."""
        if bearer.audiences:
            return bearer
        good_for = tuple(one for one in audiences if one in self._own) if audiences else self._own
        return Bearer(bearer.user, good_for) if good_for else None


def read_token_file(path: Path) -> dict[str, User]:
    """Return the users of a file, one per line: token, name, uid, groups as one quoted list. Raise TokenFileError."""
    users: dict[str, User] = {}
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TokenFileError(f"the token file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokenFileError(f"the token file {path} cannot be read: it is not UTF-8") from None
    for number, row in enumerate(csv.reader(io.StringIO(text), skipinitialspace=True), start=1):
        if not row or row[0].startswith("#"):
            continue
        if len(row) < 3 or not row[0] or not row[1]:
            raise TokenFileError(f'{path}, line {number}: expected token,user,uid[,"group1,group2"]')
        groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
        users[row[0]] = User(row[1], groups, row[2])
    return users


@cache_short_texts(1024, longest=4096)
def token_hash(token: str) -> bytes:
    """Return the hash under which a token is cached; cheap, since every request needs it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
