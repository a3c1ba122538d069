"""Who the client says it is: fixed, read from a file that others renew, or asked of a plug-in until it expires."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import orjson

from pinnace.model.clock import Clock, SystemClock
from pinnace.model.objects import Object

_EXEC_GROUP = "client.authentication.k8s.io"
_FILE_SECONDS = 60.0
_EARLY = timedelta(seconds=10)
"""What expires so soon is not worth using."""


class NoCredentials(Exception):
    """A plug-in or a file did not give what it is there for. The message says which, and what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What proves who is calling: a header, a certificate, or neither. All PEM."""

    authorization: str = ""
    """The whole value of the header."""
    certificate: bytes = b""
    key: bytes = b""


class Credentials(Protocol):
    async def identity(self, *, afresh: bool = False) -> Identity:
        """Who to be for the next request; `afresh` after the server has refused the last one."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same for ever."""

    known: Identity = Identity()

    async def identity(self, *, afresh: bool = False) -> Identity:
        return self.known


class TokenFile:
    """A token that somebody else renews, such as a pod's own."""

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._read: datetime | None = None
        self._known = Identity()

    async def identity(self, *, afresh: bool = False) -> Identity:
        now = self._clock.now()
        if afresh or self._read is None or now - self._read >= timedelta(seconds=_FILE_SECONDS):
            try:
                token = self._path.read_text().strip()
            except OSError as error:
                if self._read is None:
                    raise NoCredentials(f"the token file {self._path} cannot be read: {error.strerror}") from error
            else:
                self._known, self._read = Identity(authorization=f"Bearer {token}"), now
        return self._known


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """How a kubeconfig says to run an exec plug-in."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = f"{_EXEC_GROUP}/v1"
    install_hint: str = ""
    interactive: str = "IfAvailable"
    cluster: Object | None = None
    """What it is told of the cluster, where the kubeconfig says that it is to be told."""


class FromPlugin:
    """Runs the plug-in once, and again when what it gave has expired or was refused. Callers wait together."""

    def __init__(self, plugin: Plugin, *, clock: Clock | None = None) -> None:
        self._plugin = plugin
        self._clock = clock or SystemClock()
        self._known: Identity | None = None
        self._expires: datetime | None = None
        self._running = asyncio.Lock()

    async def identity(self, *, afresh: bool = False) -> Identity:
        refused = self._known if afresh else None
        async with self._running:
            if self._known is None or self._known is refused or self._has_expired():
                status = await self._run()
                self._known, self._expires = _identity_of(status), _expiry_of(status)
            return self._known

    def _has_expired(self) -> bool:
        return self._expires is not None and self._clock.now() + _EARLY >= self._expires

    async def _run(self) -> Object:
        plugin = self._plugin
        can_ask = plugin.interactive != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if plugin.interactive == "Always" and not can_ask:
            raise NoCredentials(f"the credential plug-in {plugin.command} must ask at a terminal, and there is none")
        spec: Object = {"interactive": can_ask}
        if plugin.cluster is not None:
            spec["cluster"] = plugin.cluster
        told = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
        environment = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": orjson.dumps(told).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env=environment,
                stdin=None if can_ask else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
            raise NoCredentials(
                f"the credential plug-in {plugin.command} cannot be run: {error.strerror}{hint}"
            ) from error
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            raise
        if process.returncode:
            said = err.decode("utf-8", "replace").strip()
            raise NoCredentials(f"the credential plug-in {plugin.command} failed with {process.returncode}: {said}")
        return _status_in(out, plugin)


def _status_in(out: bytes, plugin: Plugin) -> Object:
    try:
        answer = orjson.loads(out)
    except orjson.JSONDecodeError as error:
        raise NoCredentials(f"the credential plug-in {plugin.command} did not print JSON: {error}") from error
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise NoCredentials(f"the credential plug-in {plugin.command} did not print an ExecCredential")
    if answer.get("apiVersion") != plugin.api_version:
        raise NoCredentials(
            f"the credential plug-in {plugin.command} printed {answer.get('apiVersion')}, "
            f"where the kubeconfig says {plugin.api_version}"
        )
    status: Object = answer.get("status") or {}
    if not status.get("token") and not (status.get("clientCertificateData") and status.get("clientKeyData")):
        raise NoCredentials(
            f"the credential plug-in {plugin.command} gave neither a token nor a certificate with its key"
        )
    return status


def _identity_of(status: Object) -> Identity:
    token = status.get("token") or ""
    return Identity(
        authorization=f"Bearer {token}" if token else "",
        certificate=(status.get("clientCertificateData") or "").encode(),
        key=(status.get("clientKeyData") or "").encode(),
    )


def _expiry_of(status: Object) -> datetime | None:
    text = status.get("expirationTimestamp")
    return datetime.fromisoformat(str(text).replace("Z", "+00:00")) if text else None
