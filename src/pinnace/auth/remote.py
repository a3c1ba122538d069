"""Sends a JSON document to another server over HTTPS and reads one back, with limits and without redirects."""

from __future__ import annotations

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

from pinnace.model.webhooks import clean_url
from pinnace.process.outbound import OutboundFailed, OutboundTooLarge, exchange
from pinnace.process.tls import client_tls
from pinnace.process.tracing import client_span

LARGEST = 1024 * 1024
TIMEOUT_SECONDS = 10.0


class RemoteError(Exception):
    """The other server could not be reached, or its answer cannot be used. The message never quotes the request."""

    def __init__(self, why: str, *, status: int = 0) -> None:
        """`status` is that of the answer; 0 if there was none."""
        super().__init__(why)
        self.status = status


class RemoteConfigError(Exception):
    """The file that says how to reach another server cannot be used. The message names it and what is wrong."""


@dataclass(frozen=True, slots=True)
class Remote:
    """The URL of another server and the credentials for it. Plain HTTP only if the URL begins with http."""

    url: str
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # May hold a token.
    timeout: float = TIMEOUT_SECONDS

    async def get(self) -> Any:
        """Return the document at the URL. Raise RemoteError."""
        with client_span("GET", **{"url.full": self.url}) as trace:
            return self._decode(await self._request("GET", None, trace))

    async def get_text(self) -> str:
        """Return the text at the URL. Raise RemoteError."""
        try:
            return (await self._request("GET", None, {})).decode()
        except UnicodeDecodeError:
            raise RemoteError(f"{self.url} did not answer with text") from None

    async def post(self, document: Any) -> Any:
        """Return the answer to a document. Raise RemoteError."""
        kind = document.get("kind", "") if isinstance(document, dict) else ""
        with client_span(f"webhook {kind}", **{"url.full": self.url}) as trace:
            return self._decode(await self._request("POST", orjson.dumps(document), trace))

    async def send(self, document: bytes) -> None:
        """Send a JSON document, and ignore the body of the answer. Raise RemoteError."""
        await self._request("POST", document, {})

    def _decode(self, content: bytes) -> Any:
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError:
            raise RemoteError(f"{self.url} did not answer with JSON") from None

    async def _request(self, method: str, body: bytes | None, trace: Mapping[str, str]) -> bytes:
        scheme = urlsplit(self.url).scheme
        if scheme not in ("https", "http"):
            raise RemoteError(f"{self.url} is neither an https nor an http URL")
        headers = {"Accept": "application/json", **self.headers, **trace}
        if body is not None:
            headers["Content-Type"] = "application/json"
        tls = (self.tls or client_tls()) if scheme == "https" else None
        try:
            answer = await exchange(
                method, self.url, headers=headers, body=body, tls=tls, largest=LARGEST, seconds=self.timeout
            )
        except OutboundTooLarge:
            raise RemoteError(f"{self.url} answered with more than {LARGEST} bytes") from None
        except OutboundFailed as error:
            raise RemoteError(f"{self.url} did not answer: {error}") from None
        if not 200 <= answer.status < 300:
            raise RemoteError(f"{self.url} answered {answer.status}", status=answer.status)
        return answer.body


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
            named: Mapping[str, Any] = entry
            return named
    return {}


def _file(config: Path, name: str) -> Path:
    return config.parent / name
