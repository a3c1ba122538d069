"""Translate the errors of a REST service into Kubernetes' errors, without the secrets in its URLs."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import orjson

from pinnace.model import errors
from pinnace.sdk.api.backends import Overtaken

_LONGEST_MESSAGE = 500
_MESSAGE_FIELDS = ("message", "detail", "title", "error")
"""The fields of a JSON body that may hold the message; `detail` and `title` are those of RFC 9457."""


def translate_error(method: str, url: str, status: int, body: bytes, headers: Mapping[str, str]) -> Exception:
    """Return the ApiError or Overtaken for an error of a service."""
    about, message = f"{describe_request(method, url)} answered {status}", _message_of(body)
    after = headers.get("Retry-After", "")
    wait = int(after) if after.isascii() and after.isdigit() and len(after) < 6 else 0
    is_write = method != "GET"
    match status:
        case 409 | 412 if is_write:
            return Overtaken(message if status == 409 else "")
        case 400 | 422 if is_write:
            return errors.BadRequest(f"the service behind it refuses it: {message or status}")
        case 403 if is_write:
            return errors.Forbidden(message or f"the service behind it answered {status}")
        case 413:
            return errors.TooLarge(f"{about}: {message}" if message else about)
        case 429:
            return errors.TooManyRequests(about, retry_after=wait)
        case 504:
            return errors.Timeout(about, retry_after=wait)
        case 405 | 501:
            return errors.InternalError(f"{about}: say with methods= which it has")
        case _ if status > 500:
            return errors.Unavailable(about, retry_after=wait)
        case 401 | 403:
            return errors.InternalError(f"{about}: are its headers= right?")
        case 301 | 302 | 303 | 307 | 308:
            return errors.InternalError(f"{about}: it is at {_without_secrets(headers.get('Location', ''))}")
        case _:
            return errors.InternalError(about)


def _message_of(body: bytes) -> str:
    """Return the message in the body of an error, in one line; empty for an HTML page."""
    text = body[: 8 * _LONGEST_MESSAGE].decode(errors="replace")
    if text.lstrip().startswith("<"):
        return ""
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        message = text
    if isinstance(message, dict):
        message = next((message[name] for name in _MESSAGE_FIELDS if isinstance(message.get(name), str)), text)
    line = " ".join((message if isinstance(message, str) else text).split())
    return "".join(char for char in line if char.isprintable())[:_LONGEST_MESSAGE]


def describe_request(method: str, url: str) -> str:
    """Return the method and URL of a request, without secrets."""
    return f"{method} {_without_secrets(url)}"


def _without_secrets(url: str) -> str:
    """Return a URL without user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a place that is none"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
