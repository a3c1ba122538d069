"""The client's credentials: fixed, read from a file that is renewed, or provided by a plug-in until they expire."""

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

from pinnace.model.objects import Object
from pinnace.process.clock import Clock, SystemClock

_EXEC_GROUP = "client.authentication.k8s.io"
_FILE_SECONDS = 60.0
_EARLY = timedelta(seconds=10)
"""Credentials that expire within this time are renewed."""


class NoCredentials(Exception):
    """A plug-in or a file did not provide credentials. The message names it and gives its error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The proof of the caller's identity: a header, a certificate with its key as PEM, or neither."""

    authorization: str = ""
    """The whole value of the header."""
    certificate: bytes = b""
    key: bytes = b""


class CredentialSource(Protocol):
    async def identity(self, *, afresh: bool = False) -> Identity:
        """Return the identity for the next request; `afresh` after the server has rejected the last one."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Credentials that never change."""

    known: Identity = Identity()

    async def identity(self, *, afresh: bool = False) -> Identity:
        return self.known


class TokenFile:
    """A token in a file that another process renews, such as a pod's own."""

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
class ExecPlugin:
    """The exec plug-in of a kubeconfig."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = f"{_EXEC_GROUP}/v1"
    install_hint: str = ""
    interactive: str = "IfAvailable"
    cluster: Object | None = None
    """The description of the cluster for the plug-in, if the kubeconfig requests it (provideClusterInfo)."""


class FromExecPlugin:
    """Runs the plug-in once, and again when its credentials have expired or were rejected. Callers share one run."""

    def __init__(self, plugin: ExecPlugin, *, clock: Clock | None = None) -> None:
        self._plugin = plugin
        self._clock = clock or SystemClock()
        self._known: Identity | None = None
        self._expires: datetime | None = None
        self._running = asyncio.Lock()

    async def identity(self, *, afresh: bool = False) -> Identity:
        rejected = self._known if afresh else None
        async with self._running:
            if self._known is None or self._known is rejected or self._has_expired():
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
        info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
        environment = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
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
            message = err.decode("utf-8", "replace").strip()
            raise NoCredentials(f"the credential plug-in {plugin.command} failed with {process.returncode}: {message}")
        return _status_in(out, plugin)


def _status_in(out: bytes, plugin: ExecPlugin) -> Object:
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
