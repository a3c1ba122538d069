"""Run one command against the server, and print its errors in kubectl's wording."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import typer

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.exchange import Retries
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import Access, KubeconfigError, find_access
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.schema.golang.text import quote

Talk = Callable[[Client], Awaitable[int | None]]


class CommandError(Exception):
    """The command line is not valid, or the command cannot be done from here. Printed after `error: `."""


class PlainCommandError(CommandError):
    """The same, printed without `error: `."""


class SeveralErrors(Exception):
    """Several errors, which are all printed."""

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
    """Run a command with a client, and exit with its code or the code of its error."""
    _show_warnings()
    access: Access | None = None
    try:
        access = find_access(path=kubeconfig, context=context)
        code = asyncio.run(_talk(talk, access, namespace, field_manager))
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        sys.stderr.close()  # The reader has closed the pipe. Python would print an error when it flushes.
        code = 0
    except KubeconfigError as error:
        code = _print_error(f"error: {error}")
    except (SeveralErrors, CommandError, ConnectionLost, NoCredentials, errors.ApiError, OSError) as error:
        code = _print_error(format_error(error, access))
    raise typer.Exit(code or 0)


def format_error(error: Exception, access: Access | None = None) -> str:
    """Return the message of an error in kubectl's wording."""
    match error:
        case SeveralErrors():
            return "\n".join(_one_of_several(failure, access) for failure in error.failures)
        case PlainCommandError():
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
        case OSError() if error.filename and error.strerror:
            return f"error: {error.filename}: {error.strerror}"
    return f"error: {error}"


def _is_refused(error: ConnectionLost) -> bool:
    return isinstance(getattr(error.__cause__, "os_error", None), ConnectionRefusedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RetriesOnRequest(Retries):
    """Retry only what the server requests: a server that cannot be reached is an error at once."""

    def after_loss(self, loss: ConnectionLost, *, attempt: int, is_repeatable: bool) -> float | None:
        return None


def raise_all(failures: list[Exception]) -> None:
    """Raise the errors of a command, if there are any."""
    if failures:
        raise SeveralErrors(failures) if len(failures) > 1 else failures[0]


def failing_with(code: int, message: str) -> NoReturn:
    """Exit before the command begins."""
    _print_error(message)
    raise typer.Exit(code)


async def _talk(talk: Talk, access: Access, namespace: str, field_manager: str) -> int | None:
    client = Client(
        HttpTransport(access),
        namespace=namespace or access.namespace,
        field_manager=field_manager,
        retries=_RetriesOnRequest(),
    )
    async with client:
        return await talk(client)


def _one_of_several(error: Exception, access: Access | None) -> str:
    if isinstance(error, CommandError):
        return str(error)
    return _api_message(error) if isinstance(error, errors.ApiError) else format_error(error, access)


def _api_message(error: errors.ApiError) -> str:
    return f"Error from server ({error.reason}): {error.message}"


def _invalid(error: errors.Invalid) -> str:
    kind, name = error.details.get("kind", ""), error.details.get("name", "")
    head = f"The {kind} {quote(name)} is invalid" if kind or name else "The request is invalid"
    errs = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in error.causes))
    if not errs:
        return head if kind or name else f"{head}: {error.message}"
    if len(errs) == 1:
        return f"{head}: {errs[0]}"
    return "\n".join([f"{head}: ", *(f"* {err}" for err in errs)])


def _print_error(message: str) -> int:
    sys.stdout.flush()
    print(message, file=sys.stderr, flush=True)
    return 1


def _show_warnings() -> None:
    """Print the server's warnings as kubectl does; other log messages are not shown."""
    log = logging.getLogger("pinnace.client.exchange")
    if not any(isinstance(handler, _Warnings) for handler in log.handlers):
        log.addHandler(_Warnings())
        log.propagate = False


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"Warning: {record.getMessage()}", file=sys.stderr, flush=True)
