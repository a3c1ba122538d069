"""One command's talk with the server: connected, told of if it takes long, and its failures worded as kubectl does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import typer

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import Access, KubeconfigError, find_access
from pinnace.client.retries import Retries
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.schema.golang.text import quoted

PATIENCE = 2.0
"""Seconds after which somebody who waits is told what for."""

Talk = Callable[[Client], Awaitable[int | None]]


class CommandError(Exception):
    """What the user asked for makes no sense, or cannot be done from here. Printed after `error: `."""


class Unsuitable(CommandError):
    """The same, in words that stand by themselves."""


class Several(Exception):
    """More than one thing went wrong. All are told."""

    def __init__(self, failures: list[Exception]) -> None:
        super().__init__("\n".join(str(error) for error in failures))
        self.failures = failures


def converse(
    talk: Talk,
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    namespace: str = "",
    field_manager: str = "kubectl",
) -> NoReturn:
    """Talk to the server and end the command with what came of it."""
    _show_warnings()
    access: Access | None = None
    try:
        access = find_access(path=kubeconfig, context=context)
        code = asyncio.run(_talking(talk, access, namespace, field_manager))
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        sys.stderr.close()  # Whoever read has seen enough. Python would complain when it flushes.
        code = 0
    except KubeconfigError as error:
        code = _told(f"error: {error}")
    except (Several, CommandError, ConnectionLost, NoCredentials, errors.ApiError, OSError) as error:
        code = _told(told(error, access))
    raise typer.Exit(code or 0)


def told(error: Exception, access: Access | None = None) -> str:
    """A failure in kubectl's words."""
    match error:
        case Several():
            return "\n".join(_one_of_several(one, access) for one in error.failures)
        case Unsuitable():
            return str(error)
        case errors.Unauthorized():
            return f"error: You must be logged in to the server ({error.message})"
        case errors.Invalid() if error.details.get("kind") or error.details.get("causes"):
            return _invalid(error)
        case errors.ApiError():
            return (
                f"Error from server ({error.reason}): {error.message}"
                if error.reason
                else (f"Error from server: {error.message}")
            )
        case ConnectionLost() if access is not None and _is_refused(error):
            host = access.server.partition("//")[2]
            return f"The connection to the server {host} was refused - did you specify the right host or port?"
        case ConnectionLost():
            return f"Unable to connect to the server: {error}"
    return f"error: {error}"


def _is_refused(error: ConnectionLost) -> bool:
    return isinstance(getattr(error.__cause__, "os_error", None), ConnectionRefusedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Impatient(Retries):
    """What the server asks to be sent again is; one that is not there is not waited for."""

    def after_loss(self, loss: ConnectionLost, *, attempt: int, is_repeatable: bool) -> float | None:
        return None


def raise_all(failures: list[Exception]) -> None:
    """Raise what went wrong, if anything has."""
    if failures:
        raise Several(failures) if len(failures) > 1 else failures[0]


def failing_with(code: int, message: str) -> NoReturn:
    """End the command before it has begun."""
    _told(message)
    raise typer.Exit(code)


@contextlib.contextmanager
def progress(message: str) -> Iterator[None]:
    """Say what is waited for if it takes longer than people like to wait without a word."""
    handle = asyncio.get_running_loop().call_later(PATIENCE, lambda: print(message, file=sys.stderr, flush=True))
    try:
        yield
    finally:
        handle.cancel()


async def _talking(talk: Talk, access: Access, namespace: str, field_manager: str) -> int | None:
    client = Client(
        HttpTransport(access),
        namespace=namespace or access.namespace,
        field_manager=field_manager,
        retries=_Impatient(),
    )
    async with client:
        return await talk(client)


def _one_of_several(error: Exception, access: Access | None) -> str:
    if isinstance(error, CommandError):
        return str(error)
    return _api_message(error) if isinstance(error, errors.ApiError) else told(error, access)


def _api_message(error: errors.ApiError) -> str:
    return f"Error from server ({error.reason}): {error.message}"


def _invalid(error: errors.Invalid) -> str:
    kind, name = error.details.get("kind", ""), error.details.get("name", "")
    head = f"The {kind} {quoted(name)} is invalid" if kind or name else "The request is invalid"
    errs = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in error.causes))
    if not errs:
        return head if kind or name else f"{head}: {error.message}"
    if len(errs) == 1:
        return f"{head}: {errs[0]}"
    return "\n".join([f"{head}: ", *(f"* {err}" for err in errs)])


def _told(message: str) -> int:
    sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)
    return 1


def _show_warnings() -> None:
    """What the server warns of is printed as kubectl prints it; the rest of the log is not for users of this."""
    log = logging.getLogger("pinnace.client.exchange")
    if not any(isinstance(handler, _Warnings) for handler in log.handlers):
        log.addHandler(_Warnings())
        log.propagate = False


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"Warning: {record.getMessage()}", file=sys.stderr, flush=True)
