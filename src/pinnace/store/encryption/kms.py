"""KMS plug-ins (API v2): seeds that a plug-in has encrypted, calls over its Unix socket, its state and its errors.

Values are encrypted here, with keys derived from a seed. The plug-in encrypts the seed, which is stored with each
value: reads call it once for a seed, writes never. Its status is polled, so that a new key ID leads to a new seed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pinnace.process.clock import AlarmClock, to_rfc3339
from pinnace.process.exposition import HistogramFamily, Labels
from pinnace.process.varint import encode_varint
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.schema.golang.text import quote
from pinnace.store.encryption.ciphers import SEED_BYTES, AesGcm, CannotOpen, Cipher, DerivedAesGcm
from pinnace.store.store import Damaged

try:
    from pinnace.process.grpc.connection import GrpcConnection
    from pinnace.process.grpc.errors import CallError, GrpcError
    from pinnace.store.etcd.wire import Fields, decode
except ImportError as missing:  # The extra brings hpack.
    raise ConfigurationError(f"KMS plug-ins need {missing.name}: pip install 'pinnace[kms]'") from missing

log = logging.getLogger(__name__)

HEALTHY_POLL_SECONDS = 60.0
UNHEALTHY_POLL_SECONDS = 10.0
HEALTHY_TTL_SECONDS = 20.0
"""How long a good status answers the health check."""
UNHEALTHY_TTL_SECONDS = 3.0
WRITE_SECONDS = 180
"""How long a seed still encrypts after the last good status."""
_CONNECT_PAUSE_SECONDS = 0.1
_MOST_KEY_ID = _MOST_SOURCE = 1024
_MOST_ANNOTATIONS = 32 * 1024
_MOST_SEEDS = 10_000
_CALLS_AT_ONCE = 16
_SEED_TYPE = 1
"""The type of a source that is a seed; 0 is a key of AES-GCM, which older servers wrote."""
_SERVICE = "/v2.KeyManagementService/"
_CODES = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
    "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable",
    "DataLoss", "Unauthenticated",
)  # fmt: skip
_DEADLINE, _UNAVAILABLE = 4, 14


class KmsCallError(Exception):
    """A call of a plug-in failed. `code` is the name of the gRPC status."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = _CODES[code] if code < len(_CODES) else f"Code({code})"
        super().__init__(f"rpc error: code = {self.code} desc = {reason}")


@dataclass(frozen=True, slots=True)
class KmsSettings:
    name: str
    socket: str
    timeout: float


@dataclass(frozen=True, slots=True)
class EncryptedObject:
    """The stored form of a value: the sealed text, and how to get its key."""

    text: bytes
    key_id: str
    source: bytes
    """The seed or key as the plug-in has encrypted it."""
    annotations: Mapping[str, bytes]
    source_type: int

    @property
    def seed(self) -> tuple[int, bytes, str, tuple[tuple[str, bytes], ...]]:
        """Equal for all values of one seed."""
        return self.source_type, self.source, self.key_id, tuple(sorted(self.annotations.items()))

    def encode(self) -> bytes:
        annotations = (_field(4, _field(1, key.encode()) + _field(2, value)) for key, value in self.annotations.items())
        source_type = b"\x28" + encode_varint(self.source_type) if self.source_type else b""
        head = _field(1, self.text) + _field(2, self.key_id.encode()) + _field(3, self.source)
        return b"".join((head, *annotations, source_type))


@dataclass(frozen=True, slots=True)
class WriteState:
    """The seed that encrypts, and until when."""

    cipher: Cipher
    envelope: EncryptedObject
    expires: datetime


@dataclass(slots=True)
class KmsMetrics:
    latencies: HistogramFamily = field(
        default_factory=lambda: HistogramFamily(
            "apiserver_envelope_encryption_kms_operations_latency_seconds",
            "KMS operation duration with gRPC error code status total.",
            tuple(0.0001 * 2**power for power in range(20)),
        )
    )
    key_uses: Counter[Labels] = field(default_factory=Counter)
    key_times: dict[Labels, float] = field(default_factory=dict)
    status_times: dict[Labels, float] = field(default_factory=dict)
    invalid_key_ids: Counter[Labels] = field(default_factory=Counter)
    cache_misses: int = 0


class KmsPlugin:
    """One provider. `seal` and `open` never wait: `fetch` gets seeds that are not known."""

    def __init__(self, settings: KmsSettings, clock: AlarmClock, metrics: KmsMetrics) -> None:
        self.name = settings.name
        self.prefix = b"k8s:enc:kms:v2:%b:" % settings.name.encode()
        self.timeout = settings.timeout
        self._socket = settings.socket
        self._clock = clock
        self._metrics = metrics
        self._seeds: dict[object, Cipher] = {}
        self._failures: dict[object, str] = {}
        """Why seeds could not be decrypted."""
        self._state: WriteState | None = None
        self._version = ""
        self._connection: GrpcConnection | None = None
        self._connecting = asyncio.Lock()
        self._checking = asyncio.Lock()
        self._checked = (float("-inf"), "it was not asked yet")

    @property
    def key_id(self) -> str:
        """The key ID of the seed that encrypts; empty without one."""
        return self._state.envelope.key_id if self._state is not None else ""

    @property
    def seed_count(self) -> int:
        return len(self._seeds)

    def name_for(self) -> str:
        """Return what values are sealed with now."""
        return f"{self.prefix.decode()}{self.key_id}"

    def name_of(self, sealed: bytes) -> str:
        """Return what a value without the prefix was sealed with."""
        try:
            return f"{self.prefix.decode()}{decode_envelope(sealed).key_id}"
        except CannotOpen:
            return self.prefix.decode()

    def seal(self, value: bytes, context: bytes) -> bytes:
        """Raise CannotOpen if there is no seed that may encrypt now."""
        state = self._state
        if state is None:
            raise CannotOpen("got unexpected nil transformer")
        if (now := self._clock.now()) > state.expires:
            raise CannotOpen(
                f"encryptedDEKSource with keyID hash {quote(hash_of(state.envelope.key_id))} expired at "
                f"{to_rfc3339(state.expires)} (current time is {to_rfc3339(now)})"
            )
        self._count_use("to_storage", state.envelope.key_id)
        of_seed = state.envelope
        text = state.cipher.seal(value, context)
        return EncryptedObject(text, of_seed.key_id, of_seed.source, of_seed.annotations, of_seed.source_type).encode()

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Raise CannotOpen, also if the seed was not fetched."""
        envelope = decode_envelope(sealed)
        cipher = self._seeds.get(envelope.seed)
        if cipher is None:
            reason = self._failures.get(envelope.seed, "it was not asked for yet")
            raise CannotOpen(f"{reason} (key ID hash {quote(hash_of(envelope.key_id))})")
        self._count_use("from_storage", envelope.key_id)
        return cipher.open(envelope.text, context)

    def lacks_seed(self, sealed: bytes) -> bool:
        """Whether `fetch` may help to open a value."""
        try:
            return decode_envelope(sealed).seed not in self._seeds
        except CannotOpen:
            return False

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Let the plug-in decrypt the seeds of these values. `open` raises the errors."""
        wanted: dict[object, EncryptedObject] = {}
        for sealed in values:
            try:
                envelope = decode_envelope(sealed)
            except CannotOpen:
                continue
            if envelope.seed not in self._seeds:
                wanted[envelope.seed] = envelope
        if not wanted:
            return
        if self._state is None:
            self._failures.update(dict.fromkeys(wanted, "got unexpected nil transformer"))
            return
        turns = asyncio.Semaphore(_CALLS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for envelope in wanted.values():
                group.create_task(self._decrypt(envelope, turns))

    async def _decrypt(self, envelope: EncryptedObject, turns: asyncio.Semaphore) -> None:
        request = _field(1, envelope.source) + _field(2, str(uuid.uuid4()).encode())
        request += _field(3, envelope.key_id.encode())
        for key, value in envelope.annotations.items():
            request += _field(4, _field(1, key.encode()) + _field(2, value))
        self._metrics.cache_misses += 1
        try:
            async with turns:
                seed = bytes(decode(await self._call("Decrypt", request)).get(1, b""))
            self._remember(envelope, _cipher_of(seed, envelope.source_type))
        except KmsCallError as error:
            self._failures[envelope.seed] = f"failed to decrypt DEK, error: {error}"
        except (CannotOpen, Damaged, TypeError, ValueError) as error:
            self._failures[envelope.seed] = f"failed to decrypt DEK, error: {error}"

    def _remember(self, envelope: EncryptedObject, cipher: Cipher) -> None:
        self._failures.pop(envelope.seed, None)
        self._seeds[envelope.seed] = cipher
        if len(self._seeds) > _MOST_SEEDS:
            del self._seeds[next(iter(self._seeds))]

    def _count_use(self, transformation: str, key_id: str) -> None:
        labels = (
            ("key_id_hash", hash_of(key_id)), ("provider_name", self.name), ("transformation_type", transformation),
        )  # fmt: skip
        self._metrics.key_uses[labels] += 1
        self._metrics.key_times[labels] = self._clock.now().timestamp()

    # The state of the plug-in.

    async def poll(self) -> None:
        """Keep the seed that encrypts up to date, until cancelled."""
        while True:
            is_healthy = not self._checked[1]
            await self._clock.sleep(HEALTHY_POLL_SECONDS if is_healthy else UNHEALTHY_POLL_SECONDS)
            if error := await self.check():
                log.error("KMS provider %s failed its health check: %s", self.name, error)

    async def check(self) -> str:
        """Return why the plug-in is not healthy; empty if it is. Take over a new key ID."""
        async with self._checking:
            at, error = self._checked
            ttl = UNHEALTHY_TTL_SECONDS if error else HEALTHY_TTL_SECONDS
            if self._clock.monotonic() - at < ttl:
                return error
            error = await self._check()
            self._checked = (self._clock.monotonic(), error)
            return error

    async def _check(self) -> str:
        try:
            status = decode(await self._call("Status", b""))
            version, healthz, key_id = (_text(status, number) for number in (1, 2, 3))
        except (KmsCallError, Damaged, ValueError) as error:
            action = "failed to perform status section of the healthz check for KMS Provider"
            return f"{action} {self.name}, error: {error}"
        errors = []
        if healthz != "ok":
            errors.append(f"got unexpected healthz status: {healthz}")
        if version not in ("v2", "v2beta1"):
            errors.append(f"expected KMSv2 API version v2, got {version}")
        else:
            self._version = self._version or version
            if version != self._version:
                errors.append(
                    "KMSv2 API version should not change after the initial status response version "
                    f"{self._version}, got {version}"
                )
        if (invalid := _key_id_error(key_id)) is not None:
            labels = (("error", "empty" if not key_id else "too_long"), ("provider_name", self.name))
            self._metrics.invalid_key_ids[labels] += 1
            errors.append(f"got invalid KMSv2 KeyID hash {quote(hash_of(key_id))}: {invalid}")
        else:
            labels = (("key_id_hash", hash_of(key_id)), ("provider_name", self.name))
            self._metrics.status_times[labels] = self._clock.now().timestamp()
            if (failure := await self._rotate(key_id)) is not None:
                errors.append(failure)
        if not errors:
            return ""
        listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        return f"kmsv2 Provider {self.name} is not healthy, error: {listed}"

    async def _rotate(self, key_id: str) -> str | None:
        """Encrypt with a new seed if the key ID has changed. Return the error, after which the old seed stays."""
        expires = self._clock.now() + timedelta(seconds=WRITE_SECONDS)
        state = self._state
        if state is not None and state.envelope.key_id == key_id:
            self._state = WriteState(state.cipher, state.envelope, expires)
            return None
        seed, unique = os.urandom(SEED_BYTES), str(uuid.uuid4())
        failure, encrypted_with = None, ""
        try:
            answer = decode(await self._call("Encrypt", _field(1, seed) + _field(2, unique.encode())), frozenset((3,)))
            envelope = EncryptedObject(
                b"\0", _text(answer, 2), bytes(answer.get(1, b"")), _annotations(answer, 3), _SEED_TYPE
            )
            encrypted_with = envelope.key_id
            failure = _envelope_error(envelope)
        except KmsCallError as error:
            failure = f"failed to encrypt DEK, error: {error}"
        except (Damaged, TypeError, ValueError) as error:
            failure = str(error)
        if failure is None and encrypted_with == key_id:
            cipher = DerivedAesGcm(seed)
            self._state = WriteState(cipher, envelope, expires)
            self._remember(envelope, cipher)
            return None
        state_error = "<nil>" if state is not None else "got unexpected nil transformer"
        until = to_rfc3339(state.expires) if state is not None else "0001-01-01T00:00:00Z"
        return (
            f"failed to rotate DEK uid={quote(unique)}, useSeed=true, errState={state_error}, "
            f"errGen={failure or '<nil>'}, statusKeyIDHash={quote(hash_of(key_id))}, "
            f"encryptKeyIDHash={quote(hash_of(encrypted_with))}, stateKeyIDHash={quote(hash_of(self.key_id))}, "
            f"expirationTimestamp={until}"
        )

    # Calls.

    async def _call(self, method: str, message: bytes) -> bytes:
        started, code = self._clock.monotonic(), "OK"
        try:
            return await self._unary(f"{_SERVICE}{method}".encode(), message)
        except KmsCallError as error:
            code = error.code
            raise
        finally:
            labels = (
                ("grpc_status_code", code), ("method_name", f"{_SERVICE}{method}"), ("provider_name", self.name),
            )  # fmt: skip
            self._metrics.latencies.of(labels).observe(self._clock.monotonic() - started)

    async def _unary(self, path: bytes, message: bytes) -> bytes:
        try:
            async with asyncio.timeout(self.timeout):
                connection = await self._connect()
                return await connection.unary(path, message, seconds=self.timeout)
        except TimeoutError:
            raise KmsCallError(_DEADLINE, "context deadline exceeded") from None
        except GrpcError as error:
            raise KmsCallError(error.code, error.message) from None
        except CallError as error:
            raise KmsCallError(_UNAVAILABLE, str(error)) from None

    async def _connect(self) -> GrpcConnection:
        """Connect, and try again until cancelled: a plug-in may start after the server."""
        async with self._connecting:
            while self._connection is None or self._connection.error is not None:
                try:
                    _, self._connection = await asyncio.get_running_loop().create_unix_connection(
                        lambda: GrpcConnection("localhost", is_tls=False, on_lost=lambda: None, pings=False),
                        self._socket,
                    )
                except OSError:
                    await asyncio.sleep(_CONNECT_PAUSE_SECONDS)
            return self._connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def decode_envelope(sealed: bytes) -> EncryptedObject:
    """Decode what follows the prefix of a value. Raise CannotOpen."""
    try:
        fields = decode(sealed, frozenset((4,)))
        source_type = int(fields.get(5, 0))
        envelope = EncryptedObject(
            bytes(fields.get(1, b"")), _text(fields, 2), bytes(fields.get(3, b"")), _annotations(fields, 4), source_type
        )
    except (Damaged, TypeError, ValueError):
        raise CannotOpen("the stored data is not an encrypted object of KMS v2") from None
    if (error := _envelope_error(envelope)) is not None:
        raise CannotOpen(error)
    return envelope


def hash_of(key_id: str) -> str:
    """Return the hash by which messages and metrics name a key; empty for none."""
    return f"sha256:{hashlib.sha256(key_id.encode()).hexdigest()}" if key_id else ""


def _cipher_of(seed: bytes, source_type: int) -> Cipher:
    return DerivedAesGcm(seed) if source_type == _SEED_TYPE else AesGcm(seed)


def _envelope_error(envelope: EncryptedObject) -> str | None:
    if envelope.source_type not in (0, _SEED_TYPE):
        return f"unknown encryptedDEKSourceType: {envelope.source_type}"
    if not envelope.text:
        return "encrypted data is empty"
    if not envelope.source:
        return "failed to validate encrypted DEK source: encrypted DEK source is empty"
    if (size := len(envelope.source)) > _MOST_SOURCE:
        limit = f"which exceeds the max size of {_MOST_SOURCE}"
        return f"failed to validate encrypted DEK source: encrypted DEK source is {size} bytes, {limit}"
    if (error := _key_id_error(envelope.key_id)) is not None:
        return f"failed to validate key id: {error}"
    size = sum(len(key) + len(value) for key, value in envelope.annotations.items())
    if size > _MOST_ANNOTATIONS:
        limit = f"which exceeds the max size of {_MOST_ANNOTATIONS}"
        return f"failed to validate annotations: total size of annotations is {size}, {limit}"
    return None


def _key_id_error(key_id: str) -> str | None:
    if not key_id:
        return "keyID is empty"
    if (size := len(key_id.encode())) > _MOST_KEY_ID:
        return f"keyID is {size} bytes, which exceeds the max size of {_MOST_KEY_ID}"
    return None


def _field(number: int, value: bytes) -> bytes:
    return b"%b%b%b" % (encode_varint(number << 3 | 2), encode_varint(len(value)), value)


def _text(fields: Fields, number: int) -> str:
    value = fields.get(number, b"")
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} is no text")
    return value.decode()


def _annotations(fields: Fields, number: int) -> dict[str, bytes]:
    entries = [decode(entry) for entry in fields.get(number, ())]
    return {_text(entry, 1): bytes(entry.get(2, b"")) for entry in entries}
