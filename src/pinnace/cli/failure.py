"""How a command ends that cannot do its work: one line on standard error, and an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer


def fail_unauthorized(error: object) -> NoReturn:
    """Exit because the server does not know the user."""
    fail(f"the server does not accept these credentials ({error}); log in again, or choose another --context")


def fail(message: object, *, code: int = 1) -> NoReturn:
    """Print the message and exit. An error of the operating system is printed without its number."""
    if isinstance(message, OSError) and message.filename and message.strerror:
        message = f"{message.filename}: {message.strerror}"
    print(f"pinnace: {message}", file=sys.stderr)
    raise typer.Exit(code) from None
