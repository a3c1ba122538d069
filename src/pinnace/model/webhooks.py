"""Webhooks as objects configure them: where one is called, and what a caller may rely on."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pinnace.model.objects import Object


class WebhookCallError(Exception):
    """A webhook gave no answer that can be read. The message is for the user."""


class UnusableWebhook(WebhookCallError):
    """A webhook cannot be called as it is configured."""


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """A `clientConfig`: the address of a webhook, and the CA bundle that its certificate must chain to."""

    url: str
    service: tuple[str, str, int] | None
    """Namespace, name and port of the service, instead of the url."""
    path: str
    bundle: str
    """In base64; empty for the CAs of the system."""

    @classmethod
    def read(cls, client_config: Mapping[str, Any]) -> WebhookEndpoint:
        bundle = client_config.get("caBundle") or ""
        service = client_config.get("service")
        if service is None:
            return cls(clean_url(client_config.get("url") or ""), None, "", bundle)
        place = (service["namespace"], service["name"], int(service.get("port") or 443))
        return cls("", place, clean_path(service.get("path") or "/"), bundle)


def clean_path(path: str) -> str:
    """Return the path as Kubernetes sends it: without empty segments, dots and a slash at the end."""
    return quote(posixpath.normpath("/" + unquote(path).lstrip("/")), safe="/$&+,:;=@")


def clean_url(url: str) -> str:
    """Return the URL with a cleaned path. A URL that cannot be parsed is left to the caller."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit((parts.scheme, parts.netloc, clean_path(parts.path), parts.query, ""))


class WebhookClient(Protocol):
    """Calls webhooks."""

    async def post(self, endpoint: WebhookEndpoint, review: Object, *, seconds: float, agent: str) -> Any:
        """Return the JSON of the answer to a review. Raise WebhookCallError.

        `agent` is the user agent by which the webhook knows the caller.
        """
