"""Reads the HTTP answer of a webhook as Kubernetes' own client reads it, with its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from pinnace.model.webhooks import WebhookCallError
from pinnace.schema.golang.text import quote
from pinnace.server.request.body import JSON, MalformedBody, check_envelope, media_type_of, parse_json
from pinnace.server.request.yaml_body import YamlError, read_yaml

_LONGEST_TEXT = 2048
_SUCCESS = range(200, 207)
_WORDS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_UNACCEPTABLE = "the server was unable to respond with a content type that the client supports"


def read_webhook_answer(status: int, content_type: str, body: bytes) -> Any:
    """Return the object in an answer. Raise WebhookCallError for a failure and for a body that is no object."""
    if status not in _SUCCESS:
        raise WebhookCallError(_status_message(body) or _describe_code(status, content_type, body))
    if not body:
        shown = content_type or JSON
        raise WebhookCallError(f"0-length response with status code: {status} and content type: {shown}")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _parse_again(body)
    try:
        check_envelope(value)
    except MalformedBody as error:
        raise WebhookCallError(f"couldn't get version/kind; json parse error: {error}") from None
    return value


def wait_before_retry(status: int, headers: Mapping[str, str]) -> int | None:
    """Return the seconds after which the webhook wants to be called again; None if it does not."""
    seconds = headers.get("Retry-After", "")
    if (status != 429 and status < 500) or not (seconds.isascii() and seconds.isdigit() and len(seconds) < 10):
        return None
    return int(seconds)


def _parse_again(body: bytes) -> Any:
    """Parse JSON that only Go reads, or YAML: Kubernetes takes a body that does not begin with { for YAML."""
    try:
        if body.lstrip()[:1] == b"{":
            return parse_json(body)
        return read_yaml(body).value
    except MalformedBody as error:
        raise WebhookCallError(f"couldn't get version/kind; json parse error: {error}") from None
    except YamlError as error:
        raise WebhookCallError(str(error)) from None


def _status_message(body: bytes) -> str:
    """Return the message of a Status in the body; empty if it is none."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(found, dict) or found.get("kind", "Status") != "Status" or found.get("status") != "Failure":
        return ""
    message = found.get("message")
    return message if isinstance(message, str) else ""


def _describe_code(status: int, content_type: str, body: bytes) -> str:
    is_text = not content_type or media_type_of(content_type).startswith("text/")
    text = body[:_LONGEST_TEXT].decode(errors="replace").strip() if is_text else "unknown"
    if status in (403, 415):
        return text
    if status == 406:
        return _UNACCEPTABLE if text in ("", "unknown") else text
    if status in _WORDS:
        return _WORDS[status]
    if status >= 500:
        return f"an error on the server ({quote(text)}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"
