"""What a REST service refuses, said as Kubernetes says it, and nothing told that is not for everybody."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import orjson

from pinnace.model import errors
from pinnace.sdk.api.backends import Overtaken

_LONGEST_EXCUSE = 500
_EXCUSES = ("message", "detail", "title", "error")
"""Where services say in JSON what is wrong; `detail` and `title` are those of RFC 9457."""


def refusal(method: str, url: str, status: int, body: bytes, headers: Mapping[str, str]) -> Exception:
    """How Kubernetes says what a service said: an ApiError, or Overtaken."""
    about, excuse = f"{shown(method, url)} answered {status}", _excuse(body)
    after = headers.get("Retry-After", "")
    wait = int(after) if after.isascii() and after.isdigit() and len(after) < 6 else 0
    is_write = method != "GET"
    match status:
        case 409 | 412 if is_write:
            return Overtaken(excuse if status == 409 else "")
        case 400 | 422 if is_write:
            return errors.BadRequest(f"the service behind it refuses it: {excuse or status}")
        case 403 if is_write:
            return errors.Forbidden(excuse or f"the service behind it answered {status}")
        case 413:
            return errors.TooLarge(f"{about}: {excuse}" if excuse else about)
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


def _excuse(body: bytes) -> str:
    """What a service says of its refusal, in a line."""
    text = body[: 8 * _LONGEST_EXCUSE].decode(errors="replace")
    if text.lstrip().startswith("<"):
        return ""  # A page for people with browsers.
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = text
    if isinstance(said, dict):
        said = next((said[name] for name in _EXCUSES if isinstance(said.get(name), str)), text)
    line = " ".join((said if isinstance(said, str) else text).split())
    return "".join(char for char in line if char.isprintable())[:_LONGEST_EXCUSE]


def shown(method: str, url: str) -> str:
    """A request as it may be told to everybody."""
    return f"{method} {_without_secrets(url)}"


def _without_secrets(url: str) -> str:
    """A URL as it may be told to everybody: without user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a place that is none"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
