"""Creates the objects that every namespace has."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.client.status_errors import is_namespace_terminating
from pinnace.model import errors
from pinnace.model.objects import Object


async def create_unless_leaving(client: Client, obj: Object) -> None:
    """Create an object, unless it exists, or its namespace is gone or being deleted."""
    try:
        await client.create(obj)
    except (errors.AlreadyExists, errors.NotFound):
        return
    except errors.Forbidden as error:
        if not is_namespace_terminating(error):
            raise
