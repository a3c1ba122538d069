"""A client of the registry API v2: tokens, manifests by platform, blobs that continue after a cut, digests verified.

A registry is not trusted, nor are the URLs that it names in redirects and in challenges. It may lead a pull to other
registries, but neither to this machine, nor to the addresses of a cloud's metadata, nor from an encrypted connection to
an open one. Only registries on loopback are asked in the clear.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import re
from collections.abc import AsyncIterator, Mapping, Sequence

import aiohttp
from yarl import URL

from pinnace.node.errors import ImageFailure, RegistryUnavailable
from pinnace.node.image_service import PullObserver, PullProgress, RegistryCredentials
from pinnace.node.images.downloads import Download
from pinnace.node.images.manifests import (
    INDEXES,
    MANIFESTS,
    MAX_MANIFEST_BYTES,
    Descriptor,
    Manifest,
    choose_platform,
    decode_json,
    decode_manifest,
    digest_of,
    is_index,
    parse_manifest,
)
from pinnace.node.images.references import DEFAULT_REGISTRY, Reference, is_loopback
from pinnace.process.clock import AlarmClock

_HOSTS = {DEFAULT_REGISTRY: "registry-1.docker.io"}
_CONNECT_SECONDS, _SILENT_SECONDS, _DOCUMENT_SECONDS = 10.0, 30.0, 60.0
_LEAST_BYTES_PER_SECOND = 10_000
"""A registry that sends a layer more slowly than this is given up, so that it cannot hold a pull for ever."""
_TRIES = 5
_MAX_REDIRECTS = 5
_MAX_NESTING = 3
_CHUNK = 1 << 18
_MAX_URL = 8192
_parameter = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_url = re.compile(r"[!-~]+")
_token = re.compile(r"[\x21-\x7e]{1,65536}")
_REFUSED = (aiohttp.ClientError, TimeoutError, ConnectionError)


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
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
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
        document = decode_manifest(data)
        for _ in range(_MAX_NESTING):
            if not is_index(document):
                return digest, parse_manifest(document)
            chosen = choose_platform(document)
            data = await self._document(chosen.digest)
            if digest_of(data) != chosen.digest:
                raise ImageFailure(f"the registry answers {chosen.digest} with content of the digest {digest_of(data)}")
            document = decode_manifest(data, chosen.media_type)
        raise ImageFailure("the indexes of the image are nested too deeply")

    async def small_blob(self, descriptor: Descriptor) -> bytes:
        """Return a blob that must fit into memory: the configuration."""
        if descriptor.size > MAX_MANIFEST_BYTES:
            raise ImageFailure(
                f"the configuration has {descriptor.size} bytes; at most {MAX_MANIFEST_BYTES} are allowed"
            )
        async with self._get(f"blobs/{descriptor.digest}", {}, _DOCUMENT_SECONDS) as response:
            data = await _read_limited(response)
        if digest_of(data) != descriptor.digest:
            raise ImageFailure(f"the registry answers {descriptor.digest} with content of the digest {digest_of(data)}")
        return data

    async def fetch_blob(self, blob: Download, observer: PullObserver | None) -> None:
        """Fetch a blob, going on where an earlier try was cut. Raise ImageFailure for wrong content."""
        for number in range(_TRIES):
            try:
                await self._continue_blob(blob, observer)
                break
            except (RegistryUnavailable, *_REFUSED) as error:
                if number == _TRIES - 1:
                    digest = blob.descriptor.digest
                    raise RegistryUnavailable(f"the layer {digest} cannot be fetched: {_text(error)}") from error
                await self._clock.sleep(0.1 * 2**number)
        blob.check()

    async def _continue_blob(self, blob: Download, observer: PullObserver | None) -> None:
        digest, size = blob.descriptor.digest, blob.descriptor.size
        if blob.size == size:
            return
        headers = {"Range": f"bytes={blob.size}-"} if blob.size else {}
        seconds = _DOCUMENT_SECONDS + (size - blob.size) / _LEAST_BYTES_PER_SECOND
        async with self._get(f"blobs/{digest}", headers, seconds) as response:
            if blob.size and response.status != 206:
                blob.restart()
            elif blob.size and not _continues_at(response, blob.size):
                blob.restart()
                raise RegistryUnavailable("the registry has sent another part of the layer than the requested one")
            async for chunk in response.content.iter_chunked(_CHUNK):
                blob.write(chunk)
                if observer is not None:
                    observer(PullProgress(digest, blob.size, size))
        if blob.size < size:
            raise RegistryUnavailable(f"the connection was cut after {blob.size} of {size} bytes")

    async def _document(self, version: str) -> bytes:
        headers = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
        async with self._get(f"manifests/{version}", headers, _DOCUMENT_SECONDS) as response:
            return await _read_limited(response)

    @contextlib.asynccontextmanager
    async def _get(
        self, path: str, headers: Mapping[str, str], seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Get from the repository, with a token if the registry asks for one. All of it may take so many seconds."""
        try:
            url = self._base.join(URL(path, encoded=True))
            async with self._follow(url, headers, seconds) as response:
                # A server that the registry redirects to gets no credentials, whatever it asks for.
                if response.status != 401 or response.url.origin() != self._base.origin():
                    self._raise_for(response)
                    yield response
                    return
                challenge = response.headers.get("WWW-Authenticate", "")
            await self._authenticate(challenge)
            async with self._follow(url, headers, seconds) as response:
                self._raise_for(response)
                yield response
        except _REFUSED as error:
            name = self._reference.registry
            raise RegistryUnavailable(
                f"the registry {name} does not answer: {_text(error)}; "
                "without it, load the image with `pinnace image load FILE`"
            ) from error

    @contextlib.asynccontextmanager
    async def _follow(
        self, url: URL, headers: Mapping[str, str], seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Get a URL and follow redirects. Credentials go to the registry alone."""
        for _ in range(_MAX_REDIRECTS):
            sent = dict(headers)
            if self._authorization and url.origin() == self._base.origin():
                sent["Authorization"] = self._authorization
            async with self._ask(url, sent, seconds) as response:
                if response.status not in (301, 302, 303, 307, 308):
                    yield response
                    return
                url = parse_location(url, response.headers.get("Location", ""))
        raise ImageFailure(f"the registry {self._reference.registry} redirects more than {_MAX_REDIRECTS} times")

    @contextlib.asynccontextmanager
    async def _ask(self, url: URL, headers: Mapping[str, str], seconds: float) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None
        self._check(url)
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS)
        async with self._session.get(url, headers=headers, allow_redirects=False, timeout=timeout) as response:
            yield response

    async def _authenticate(self, challenge: str) -> None:
        basic = ""
        if self._credentials.username:
            pair = f"{self._credentials.username}:{self._credentials.password}"
            basic = f"Basic {base64.b64encode(pair.encode()).decode()}"
        if challenge.partition(" ")[0].lower() == "basic":
            if not basic:
                raise self._denied()
            self._authorization = basic
            return
        if not challenge:
            raise self._denied()
        realm, parameters = parse_realm(self._base, challenge)
        query = {"scope": parameters.get("scope") or f"repository:{self._reference.repository}:pull"}
        if "service" in parameters:
            query["service"] = parameters["service"]
        headers = {"Authorization": basic} if basic else {}
        async with self._ask(realm.update_query(query), headers, _DOCUMENT_SECONDS) as response:
            if response.status != 200:
                raise self._denied()
            answer = decode_json(await _read_limited(response), "token")
        token = _checked_token(answer.get("token") or answer.get("access_token"))
        if not token:
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


def _continues_at(response: aiohttp.ClientResponse, place: int) -> bool:
    start = f"bytes {place}-"
    return response.headers.get("Content-Range", start).startswith(start)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def try_all(credentials: Sequence[RegistryCredentials]) -> Sequence[RegistryCredentials]:
    """The credentials to try in order: anonymous access last."""
    return [*credentials, RegistryCredentials()]


# The URLs that a registry names: where a pull may go, and where credentials may go


def parse_location(base: URL, text: str) -> URL:
    """The target of a redirect. Raise ImageFailure if it may not be followed."""
    if not text:
        raise ImageFailure(f"the registry {base.host} redirects without a Location")
    return _checked(base, text, "redirects to")


def parse_realm(base: URL, challenge: str) -> tuple[URL, dict[str, str]]:
    """The token server that a challenge names, and the parameters. Raise ImageFailure if it may not be asked."""
    scheme, _, rest = challenge[:_MAX_URL].partition(" ")
    parameters = {name.lower(): value for name, value in _parameter.findall(rest)}
    if scheme.lower() != "bearer" or "realm" not in parameters:
        raise ImageFailure(f"the registry {base.host} asks for a way of authentication that is not supported")
    realm = _checked(base, parameters["realm"], "names a token server")
    if not realm.absolute:
        raise ImageFailure(f"the registry {base.host} names a token server without a host")
    return realm, parameters


def _checked_token(text: object) -> str:
    """The token of a token server; empty if it cannot be sent in a header."""
    return text if isinstance(text, str) and _token.fullmatch(text) else ""


def _checked(base: URL, text: str, act: str) -> URL:
    excerpt = repr(text[:200])
    try:
        if len(text) > _MAX_URL or not _url.fullmatch(text):
            raise ValueError("it is too long, or has characters that no URL has")
        url = base.join(URL(text, encoded=True))  # Its signature holds for exactly these characters.
        host, port = url.host or "", url.port
        origin = url.origin()
    except (ValueError, TypeError) as error:
        raise ImageFailure(f"the registry {base.host} {act} {excerpt}, which is no valid URL: {error}") from error
    if url.scheme not in ("http", "https") or not host or not port:
        raise ImageFailure(f"the registry {base.host} {act} {excerpt}; only http and https are possible")
    if url.user is not None or url.password is not None:
        raise ImageFailure(f"the registry {base.host} {act} {excerpt}, which has credentials in it")
    if origin == base.origin():
        return url
    if url.scheme == "http" and not (base.scheme == "http" and is_loopback(host)):
        raise ImageFailure(f"the registry {base.host} {act} {excerpt}, which is not encrypted")
    if not is_loopback(base.host or "") and _is_of_this_machine(host):
        raise ImageFailure(
            f"the registry {base.host} {act} {excerpt}, which is an address of this machine or its cloud"
        )
    return url


def _is_of_this_machine(host: str) -> bool:
    """Whether a host is loopback, link-local or unspecified, without asking a name server."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host.rstrip(".").lower() == "localhost" or host.lower().rstrip(".").endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_link_local or mapped.is_unspecified or mapped.is_multicast)
