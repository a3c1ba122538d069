"""Names that the server gives: generated object names, and the field manager of a request."""

from __future__ import annotations

import random

from pinnace.server.request.call import Call

NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED = 63 - 5


def generate_name(prefix: str) -> str:
    return prefix[:_MAX_GENERATED] + "".join(random.choices(NAME_LETTERS, k=5))


def manager_of(call: Call) -> str:
    """Return the field manager: the fieldManager option, or the first word of the User-Agent."""
    return call.text("fieldManager") or call.request.head.agent
