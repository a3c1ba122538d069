"""Credential providers: programs of the machine that return the credentials for the registry of an image.

A program reads a CredentialProviderRequest and writes a CredentialProviderResponse, which is kept for as long as it
says. One that fails gives no credentials: the pull goes on without them, and the log has the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import orjson

from pinnace.model.objects import Object
from pinnace.node.image_service import RegistryCredentials
from pinnace.process.clock import AlarmClock
from pinnace.process.tasks import Tasks
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.configuration.documents import TEXT, TEXTS, decode, items, read_file, structure
from pinnace.schema.configuration.errors import ConfigurationError

KIND = "CredentialProviderConfig"
_GROUP = "kubelet.config.k8s.io"
_CONFIG_VERSIONS = ("v1", "v1beta1", "v1alpha1")
_VERSIONS = tuple(f"credentialprovider.kubelet.k8s.io/{version}" for version in _CONFIG_VERSIONS)
_FIELDS: Object = items(
    structure(
        name=TEXT,
        matchImages=TEXTS,
        defaultCacheDuration=TEXT,
        apiVersion=TEXT,
        args=TEXTS,
        env=items(structure(name=TEXT, value=TEXT)),
        tokenAttributes={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )
)
_SECONDS = 60.0
"""How long a program may take."""
_MOST_BYTES = 1 << 20
_MOST_ENTRIES = 1000
_DEFAULT_REGISTRY = "docker.io"
_IMAGE, _REGISTRY, _GLOBAL = "Image", "Registry", "Global"
_log = logging.getLogger(__name__)


class ProviderFailed(Exception):
    """A program did not return credentials. The message is for the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialProvider:
    """One entry of the configuration."""

    name: str
    program: Path
    match_images: Sequence[str]
    cache_seconds: float
    version: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def read_providers(config: Path, programs: Path) -> list[CredentialProvider]:
    """Read a configuration, or all of a directory, whose programs are in a directory. Raise ConfigurationError."""
    if not programs.is_dir():
        raise ConfigurationError(f"plugin binary directory {programs} did not exist")
    files = [config]
    if config.is_dir():
        files = sorted(path for path in config.iterdir() if path.suffix in (".json", ".yaml", ".yml"))
    providers: dict[str, CredentialProvider] = {}
    for file in files:
        for provider in _read(file, programs):
            if provider.name in providers:
                text = f'duplicate provider name "{provider.name}" found in configuration file(s)'
                raise ConfigurationError(f"{file}: {text}")
            providers[provider.name] = provider
    if not providers:
        raise ConfigurationError(f"{config}: providers: Required value: at least 1 item in plugins is required")
    return list(providers.values())


def _read(file: Path, programs: Path) -> list[CredentialProvider]:
    document = decode(
        read_file(file), file, kind=KIND, versions=_CONFIG_VERSIONS, fields={"providers": _FIELDS}, group=_GROUP
    )
    providers = []
    for number, stated in enumerate(document.get("providers") or ()):
        try:
            providers.append(_provider_of(stated, programs))
        except ValueError as error:
            raise ConfigurationError(f"{file}: providers[{number}]: {error}") from None
    return providers


def _provider_of(stated: Object, programs: Path) -> CredentialProvider:
    """Raise ValueError."""
    name, version = stated.get("name") or "", stated.get("apiVersion") or ""
    if name in ("", ".", "..") or "/" in name or any(letter.isspace() for letter in name):
        raise ValueError(f'name: Invalid value: "{name}": provider name is empty, "." or "..", or has "/" or spaces')
    if version not in _VERSIONS:
        raise ValueError(f'apiVersion: Unsupported value: "{version}": supported values: {", ".join(_VERSIONS)}')
    if not stated.get("matchImages"):
        raise ValueError("matchImages: Required value: at least 1 item in matchImages is required")
    if stated.get("tokenAttributes"):
        raise ValueError("tokenAttributes: this node gives providers no tokens of service accounts")
    duration = stated.get("defaultCacheDuration")
    if duration is None:
        raise ValueError("defaultCacheDuration: Required value")
    program = programs / name
    if not os.access(program, os.X_OK):
        raise ValueError(f"plugin binary executable {program} did not exist")
    return CredentialProvider(
        name=name,
        program=program,
        match_images=stated["matchImages"],
        cache_seconds=_seconds(duration),
        version=version,
        args=stated.get("args") or (),
        env={pair["name"]: pair.get("value", "") for pair in stated.get("env") or ()},
    )


class CredentialProviders:
    """The credentials of all providers of a node."""

    def __init__(self, providers: Sequence[CredentialProvider], clock: AlarmClock) -> None:
        self._providers = [_CachedProvider(provider, clock) for provider in providers]

    async def find(self, image: str) -> list[RegistryCredentials]:
        """Return the credentials for an image, named with its registry and without a tag, the closest ones first."""
        known: dict[str, list[RegistryCredentials]] = {}
        for provider in self._providers:
            if any(matches(pattern, image) for pattern in provider.settings.match_images):
                for pattern, credentials in (await provider.find(image)).items():
                    known.setdefault(_without_scheme(pattern), []).append(credentials)
        chosen = [item for pattern in sorted(known, reverse=True) if matches(pattern, image) for item in known[pattern]]
        if not chosen and image.startswith(f"{_DEFAULT_REGISTRY}/"):
            return known.get(f"index.{_DEFAULT_REGISTRY}", [])
        return chosen


class _CachedProvider:
    def __init__(self, settings: CredentialProvider, clock: AlarmClock) -> None:
        self.settings = settings
        self.tasks = Tasks(expected=(ProviderFailed, OSError))
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[float, dict[str, RegistryCredentials]]] = {}
        """Answers and the times of their ends, by what they hold for."""
        self._running: dict[str, asyncio.Task[dict[str, RegistryCredentials]]] = {}

    async def find(self, image: str) -> dict[str, RegistryCredentials]:
        """Return the credentials by the images that they are for. Pulls of one image run the program once."""
        now = self._clock.monotonic()
        for key in ((_IMAGE, image), (_REGISTRY, _registry_of(image)), (_GLOBAL, "")):
            end, answer = self._kept.get(key, (now, {}))
            if end > now:
                return answer
        task = self._running.get(image)
        if task is None:
            task = self._running[image] = self.tasks.start(self._ask(image))
            task.add_done_callback(lambda _: self._running.pop(image, None))
        try:
            return await asyncio.shield(task)
        except (ProviderFailed, OSError) as error:
            _log.error("the credential provider %s failed for %s: %s", self.settings.name, image, error)
            return {}

    async def _ask(self, image: str) -> dict[str, RegistryCredentials]:
        request = {"kind": "CredentialProviderRequest", "apiVersion": self.settings.version, "image": image}
        response = _response_in(await _run(self.settings, orjson.dumps(request)), self.settings)
        places = {_IMAGE: image, _REGISTRY: _registry_of(image), _GLOBAL: ""}
        scope = response.get("cacheKeyType")
        if scope not in places:
            raise ProviderFailed(f"credential provider plugin did not return a valid cacheKeyType: {scope}")
        stated = response.get("cacheDuration")
        try:
            seconds = self.settings.cache_seconds if stated is None else _seconds(stated)
            auth = {
                str(name): RegistryCredentials(str(entry.get("username", "")), str(entry.get("password", "")))
                for name, entry in (response.get("auth") or {}).items()
            }
        except (AttributeError, TypeError, ValueError):
            raise ProviderFailed("the response has a malformed cacheDuration or auth") from None
        if seconds > 0:
            now = self._clock.monotonic()
            if len(self._kept) >= _MOST_ENTRIES:
                self._kept = {key: entry for key, entry in self._kept.items() if entry[0] > now}
            if len(self._kept) < _MOST_ENTRIES:
                self._kept[scope, places[scope]] = (now + seconds, auth)
        return auth


class _Exchange(asyncio.SubprocessProtocol):
    """The output of a program, until it has ended and its pipes are closed.

    Not `asyncio.subprocess.Process`: its `wait` returns only once all pipes are closed. That never comes if the reader
    of a pipe is paused, or if a process that has left the group holds a pipe open.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.written = {1: bytearray(), 2: bytearray()}
        self.is_complete: asyncio.Future[None] = loop.create_future()
        self.has_exited: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.is_complete.done():
            return
        self.written[fd] += data
        if len(self.written[fd]) > _MOST_BYTES:
            self.is_complete.set_exception(ProviderFailed(f"it writes more than {_MOST_BYTES} bytes"))

    def process_exited(self) -> None:
        if not self.has_exited.done():
            self.has_exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_complete.done():
            self.is_complete.set_result(None)


async def _run(provider: CredentialProvider, request: bytes) -> bytes:
    """Run a program, and return its output. Raise ProviderFailed or OSError."""
    transport, exchange = await asyncio.get_running_loop().subprocess_exec(
        _Exchange,
        provider.program,
        *provider.args,
        env={**os.environ, **provider.env},
        start_new_session=True,
    )
    pipes = [transport.get_pipe_transport(fd) for fd in range(3)]
    try:
        async with asyncio.timeout(_SECONDS):
            stdin = cast(asyncio.WriteTransport, pipes[0])
            stdin.write(request)
            stdin.write_eof()
            await exchange.is_complete
    except TimeoutError:
        raise ProviderFailed(f"no answer within {_SECONDS:.0f} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)  # Also the processes that it has left.
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        await exchange.has_exited
        transport.close()
    if code := transport.get_returncode():
        raise ProviderFailed(f"exit status {code}: {exchange.written[2][:1024].decode(errors='replace').strip()}")
    return bytes(exchange.written[1])


def _response_in(output: bytes, provider: CredentialProvider) -> dict[str, Any]:
    try:
        response = orjson.loads(output)
    except ValueError:
        raise ProviderFailed("the response is not JSON") from None
    if not isinstance(response, dict) or response.get("kind") != "CredentialProviderResponse":
        raise ProviderFailed("failed to decode CredentialProviderResponse")
    version = response.get("apiVersion")
    if version != provider.version:
        raise ProviderFailed(
            "apiVersion from credential plugin response did not match expected "
            f"apiVersion:{provider.version}, actual apiVersion:{version}"
        )
    return response


def matches(pattern: str, image: str) -> bool:
    """Return whether an image matches: the same port, the same parts of the host, and a path that begins alike.

    The parts of the host in the pattern may have wildcards.
    """
    try:
        wanted, actual = urlsplit(f"https://{pattern}"), urlsplit(f"https://{image}")
        if wanted.port != actual.port:
            return False
    except ValueError:
        return False
    parts, others = (wanted.hostname or "").split("."), (actual.hostname or "").split(".")
    if len(parts) != len(others) or not actual.path.startswith(wanted.path):
        return False
    return all(fnmatchcase(other, part) for part, other in zip(parts, others, strict=True))


def _without_scheme(pattern: str) -> str:
    place = pattern.removeprefix("https://").removeprefix("http://")
    host, _, path = place.partition("/")
    for version in ("v1", "v2"):
        if path == version or path.startswith(f"{version}/"):
            path = path[len(version) + 1 :]
    return f"{host}/{path}" if path else host


def _registry_of(image: str) -> str:
    return image.partition("/")[0]


def _seconds(duration: str) -> float:
    """Raise ValueError."""
    invalid = f'defaultCacheDuration: Invalid value: "{duration}"'
    try:
        seconds = parse_duration(duration).nanos / 1e9
    except ValueError:
        raise ValueError(f"{invalid}: it is no duration such as 1h30m") from None
    if seconds < 0:
        raise ValueError(f"{invalid}: must be greater than or equal to 0")
    return seconds
