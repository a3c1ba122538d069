"""A client of the registry API v2: tokens, manifests by platform, blobs that continue after a cut, digests verified."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import aiohttp
from yarl import URL

from pinnace.model.clock import AlarmClock
from pinnace.node.images.manifests import (
    INDEXES,
    MANIFESTS,
    MAX_MANIFEST_BYTES,
    Descriptor,
    Manifest,
    choose_platform,
    decode_json,
    digest_of,
    is_index,
    parse_manifest,
)
from pinnace.node.images.references import DEFAULT_REGISTRY, Reference, is_loopback
from pinnace.node.runtime.errors import ImageFailure, RegistryUnavailable
from pinnace.node.runtime.runtime import PullObserver, PullProgress, RegistryCredentials

_HOSTS = {DEFAULT_REGISTRY: "registry-1.docker.io"}
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30)
_TRIES = 5
_MAX_REDIRECTS = 5
_CHUNK = 1 << 18
_parameter = re.compile(r'([a-z]+)="([^"]*)"')


class AccessDenied(ImageFailure):
    """The registry refuses these credentials."""


class Offline(ImageFailure):
    """Pulls that leave this machine are switched off."""


class RegistryClient:
    """One repository of a registry, with one set of credentials. Use it in `async with`."""

    def __init__(
        self, reference: Reference, credentials: RegistryCredentials, clock: AlarmClock, *, is_offline: bool
    ) -> None:
        self._reference = reference
        self._credentials = credentials
        self._clock = clock
        self._is_offline = is_offline
        self._authorization = ""
        scheme = "http" if reference.is_on_loopback else "https"
        host = _HOSTS.get(reference.registry, reference.registry)
        self._base = URL(f"{scheme}://{host}/v2/{reference.repository}/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> RegistryClient:
        self._check(self._base)
        self._session = aiohttp.ClientSession(timeout=_TIMEOUT, auto_decompress=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def manifest(self) -> tuple[str, Manifest]:
        """Return the digest that the reference has now, and the manifest for this machine."""
        data = await self._document(self._reference.version)
        digest = digest_of(data)
        if self._reference.digest and digest != self._reference.digest:
            raise ImageFailure(f"{self._reference} has the digest {digest}: the registry answers with other content")
        document = decode_json(data, "manifest")
        for _ in range(3):
            if not is_index(document):
                return digest, parse_manifest(document)
            chosen = choose_platform(document)
            data = await self._document(chosen.digest)
            if digest_of(data) != chosen.digest:
                raise ImageFailure(f"the registry answers {chosen.digest} with content of the digest {digest_of(data)}")
            document = decode_json(data, "manifest")
        raise ImageFailure("the indexes of the image are nested too deeply")

    async def small_blob(self, descriptor: Descriptor) -> bytes:
        """Return a blob that must fit into memory: the configuration."""
        if descriptor.size > MAX_MANIFEST_BYTES:
            raise ImageFailure(
                f"the configuration has {descriptor.size} bytes; at most {MAX_MANIFEST_BYTES} are allowed"
            )
        async with self._get(f"blobs/{descriptor.digest}", {}) as response:
            data = await _read_limited(response)
        if digest_of(data) != descriptor.digest:
            raise ImageFailure(f"the registry answers {descriptor.digest} with content of the digest {digest_of(data)}")
        return data

    async def fetch_blob(self, descriptor: Descriptor, target: Path, observer: PullObserver | None) -> None:
        """Fetch a blob into a file, going on where an earlier try was cut. Raise ImageFailure for wrong content."""
        for number in range(_TRIES):
            try:
                await self._continue_blob(descriptor, target, observer)
                break
            except (RegistryUnavailable, aiohttp.ClientError, TimeoutError, ConnectionError) as error:
                if number == _TRIES - 1:
                    raise RegistryUnavailable(f"the layer {descriptor.digest} cannot be fetched: {error}") from error
                await self._clock.sleep(0.1 * 2**number)
        found = await asyncio.to_thread(_digest_file, target)
        if found != descriptor.digest:
            target.unlink()
            raise ImageFailure(f"the registry answers {descriptor.digest} with content of the digest {found}")

    async def _continue_blob(self, descriptor: Descriptor, target: Path, observer: PullObserver | None) -> None:
        done = target.stat().st_size if target.exists() else 0
        if done >= descriptor.size:
            if done > descriptor.size:
                target.unlink()
                raise RegistryUnavailable("a part of the layer was too long and is fetched again")
            target.touch()
            return
        headers = {"Range": f"bytes={done}-"} if done else {}
        async with self._get(f"blobs/{descriptor.digest}", headers) as response:
            if response.status != 206:
                done = 0
            with target.open("ab" if done else "wb") as file:
                async for chunk in response.content.iter_chunked(_CHUNK):
                    done += len(chunk)
                    if done > descriptor.size:
                        raise ImageFailure(f"the layer {descriptor.digest} is longer than its {descriptor.size} bytes")
                    file.write(chunk)
                    if observer is not None:
                        observer(PullProgress(descriptor.digest, done, descriptor.size))
        if done < descriptor.size:
            raise RegistryUnavailable(f"the connection was cut after {done} of {descriptor.size} bytes")

    async def _document(self, version: str) -> bytes:
        async with self._get(f"manifests/{version}", {"Accept": ", ".join((*INDEXES, *MANIFESTS))}) as response:
            return await _read_limited(response)

    @contextlib.asynccontextmanager
    async def _get(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Get from the repository, with a token if the registry asks for one."""
        try:
            async with self._follow(self._base.join(URL(path, encoded=True)), headers) as response:
                if response.status != 401:
                    self._raise_for(response)
                    yield response
                    return
                challenge = response.headers.get("WWW-Authenticate", "")
            await self._authenticate(challenge)
            async with self._follow(self._base.join(URL(path, encoded=True)), headers) as response:
                self._raise_for(response)
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            name = self._reference.registry
            raise RegistryUnavailable(
                f"the registry {name} does not answer: {error or type(error).__name__}; "
                "without it, load the image with `pinnace image load FILE`"
            ) from error

    @contextlib.asynccontextmanager
    async def _follow(self, url: URL, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Get a URL and follow redirects. Credentials go to the registry alone."""
        assert self._session is not None
        for _ in range(_MAX_REDIRECTS):
            self._check(url)
            sent = dict(headers)
            if self._authorization and url.origin() == self._base.origin():
                sent["Authorization"] = self._authorization
            async with self._session.get(url, headers=sent, allow_redirects=False) as response:
                if response.status not in (301, 302, 303, 307, 308):
                    yield response
                    return
                url = url.join(URL(response.headers.get("Location", "")))
        raise RegistryUnavailable(f"the registry {self._reference.registry} redirects more than {_MAX_REDIRECTS} times")

    async def _authenticate(self, challenge: str) -> None:
        scheme, _, rest = challenge.partition(" ")
        basic = ""
        if self._credentials.username:
            pair = f"{self._credentials.username}:{self._credentials.password}"
            basic = f"Basic {base64.b64encode(pair.encode()).decode()}"
        if scheme.lower() == "basic" and basic:
            self._authorization = basic
            return
        parameters = dict(_parameter.findall(rest))
        if scheme.lower() != "bearer" or "realm" not in parameters:
            raise self._denied()
        realm = URL(parameters["realm"])
        self._check(realm)
        query = {"scope": parameters.get("scope") or f"repository:{self._reference.repository}:pull"}
        if "service" in parameters:
            query["service"] = parameters["service"]
        assert self._session is not None
        headers = {"Authorization": basic} if basic else {}
        async with self._session.get(realm.update_query(query), headers=headers, allow_redirects=False) as response:
            if response.status != 200:
                raise self._denied()
            answer = decode_json(await _read_limited(response), "token")
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise self._denied()
        self._authorization = f"Bearer {token}"

    def _raise_for(self, response: aiohttp.ClientResponse) -> None:
        name = str(self._reference)
        if response.status in (200, 206):
            return
        if response.status in (401, 403):
            raise self._denied()
        if response.status == 404:
            raise ImageFailure(f'failed to resolve reference "{name}": {name}: not found')
        raise RegistryUnavailable(f'failed to resolve reference "{name}": unexpected status {response.status}')

    def _denied(self) -> AccessDenied:
        return AccessDenied(
            f'failed to resolve reference "{self._reference}": pull access denied, repository does not exist '
            "or may require authorization"
        )

    def _check(self, url: URL) -> None:
        """Raise Offline if a request would leave this machine though it may not."""
        if self._is_offline and not is_loopback(url.host or ""):
            raise Offline(
                f"the pull of {self._reference} from {url.host} is refused: PINNACE_OFFLINE=1 or --offline allows "
                "pulls from loopback alone; load the image with `pinnace image load FILE`"
            )


async def _read_limited(response: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        data += chunk
        if len(data) > MAX_MANIFEST_BYTES:
            raise ImageFailure(f"the registry sends more than {MAX_MANIFEST_BYTES} bytes where a manifest is expected")
    return bytes(data)


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def try_all(credentials: Sequence[RegistryCredentials]) -> Sequence[RegistryCredentials]:
    """The credentials to try in order: anonymous access last."""
    return [*credentials, RegistryCredentials()]
