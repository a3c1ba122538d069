"""Asks another server over HTTPS: one JSON document out, one back. Nothing is followed, everything is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml

from pinnace.model.tls import client_tls
from pinnace.model.tracing import client_span
from pinnace.model.webhooks import clean_url

LARGEST = 1024 * 1024
TIMEOUT_SECONDS = 10.0


class RemoteError(Exception):
    """The other server could not be asked, or its answer is of no use. The message never quotes what was sent."""

    def __init__(self, why: str, *, status: int = 0) -> None:
        """`status` is the one that was answered; 0 if there was no answer."""
        super().__init__(why)
        self.status = status


class RemoteConfigError(Exception):
    """The file that says how to reach another server cannot be used. The message names it and what is wrong."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Where to ask and how to be known there. Plain HTTP only where the URL says so."""

    url: str
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # May hold a token.
    timeout: float = TIMEOUT_SECONDS

    async def get(self) -> Any:
        """Return the document at the URL. Raise RemoteError."""
        with client_span("GET", **{"url.full": self.url}) as trace:
            return await asyncio.to_thread(self._exchange, "GET", None, trace)

    async def post(self, document: Any) -> Any:
        """Return the answer to a document. Raise RemoteError."""
        kind = document.get("kind", "") if isinstance(document, dict) else ""
        with client_span(f"webhook {kind}", **{"url.full": self.url}) as trace:
            return await asyncio.to_thread(self._exchange, "POST", orjson.dumps(document), trace)

    async def send(self, document: bytes) -> None:
        """Have a JSON document taken, whatever is answered to it. Raise RemoteError."""
        await asyncio.to_thread(self._request, "POST", document, {})

    def _exchange(self, method: str, body: bytes | None, trace: Mapping[str, str]) -> Any:
        content = self._request(method, body, trace)
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError:
            raise RemoteError(f"{self.url} did not answer with JSON") from None

    def _request(self, method: str, body: bytes | None, trace: Mapping[str, str]) -> bytes:
        import http.client  # noqa: PLC0415 - most clusters never ask another server.

        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = self.tls or client_tls()
            connection = http.client.HTTPSConnection(host, port, context=context, timeout=self.timeout)
        elif parts.scheme == "http":
            connection = http.client.HTTPConnection(host, port, timeout=self.timeout)
        else:
            raise RemoteError(f"{self.url} is neither an https nor an http URL")
        headers = {"Accept": "application/json", **self.headers, **trace}
        if body is not None:
            headers["Content-Type"] = "application/json"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with contextlib.closing(connection):
            try:
                connection.request(method, target, body=body, headers=headers)
                answer = connection.getresponse()
                content = answer.read(LARGEST + 1)
            except (OSError, http.client.HTTPException, ValueError, OverflowError) as error:  # Odd chunk sizes, too.
                raise RemoteError(f"{self.url} did not answer: {error}") from None
        if not 200 <= answer.status < 300:
            raise RemoteError(f"{self.url} answered {answer.status}", status=answer.status)
        if len(content) > LARGEST:
            raise RemoteError(f"{self.url} answered with more than {LARGEST} bytes")
        return content


def read_remote(path: Path, *, timeout: float = TIMEOUT_SECONDS) -> Remote:
    """Return the server in a kubeconfig file that configures a webhook. Raise RemoteConfigError."""
    try:
        config = yaml.safe_load(path.read_bytes())
        contexts = _named(config.get("contexts"), config.get("current-context"))
        context = contexts.get("context") or {}
        cluster = _named(config["clusters"], context.get("cluster"))["cluster"]
        user = _named(config.get("users"), context.get("user")).get("user") or {}
        url = cluster["server"]
        headers = {}
        token = user.get("token") or (_file(path, user["tokenFile"]).read_text().strip() if "tokenFile" in user else "")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return Remote(clean_url(url), _tls(path, cluster, user) if url.startswith("https:") else None, headers, timeout)
    except ssl.SSLError:
        raise RemoteConfigError(f"{path} does not say how to reach a server: its certificates cannot be used") from None
    except OSError as error:
        raise RemoteConfigError(f"{error.filename or path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError):  # They may quote a token.
        form = "write it as a kubeconfig with clusters, contexts and current-context"
        raise RemoteConfigError(f"{path} does not say how to reach a server: {form}") from None


def _tls(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    if "certificate-authority-data" in cluster:
        authorities = b64decode(cluster["certificate-authority-data"]).decode("ascii")
        context = client_tls(ca=authorities)
    elif "certificate-authority" in cluster:
        context = client_tls(ca_file=_file(path, cluster["certificate-authority"]))
    else:
        context = client_tls()
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "client-certificate-data" in user:
        # Python reads a certificate and its key from files alone; only this process may read these.
        with tempfile.NamedTemporaryFile() as both:
            both.write(b64decode(user["client-certificate-data"]) + b"\n" + b64decode(user["client-key-data"]))
            both.flush()
            context.load_cert_chain(both.name)
    elif "client-certificate" in user:
        context.load_cert_chain(_file(path, user["client-certificate"]), _file(path, user["client-key"]))
    return context


def _named(entries: Any, name: Any) -> Mapping[str, Any]:
    """Return the entry of that name; the only entry if no name is given."""
    for entry in entries or ():
        if name is None or entry.get("name") == name:
            found: Mapping[str, Any] = entry
            return found
    return {}


def _file(config: Path, name: str) -> Path:
    return config.parent / name
