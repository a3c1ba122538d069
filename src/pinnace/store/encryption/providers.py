"""Encryption by an EncryptionConfiguration: which providers seal and open the values of a resource."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pinnace.process.exposition import HistogramFamily, Labels
from pinnace.store.encryption.ciphers import CannotOpen, Cipher
from pinnace.store.store import EncryptionFailed

if TYPE_CHECKING:
    from pinnace.store.encryption.kms import KmsMetrics, KmsPlugin

SEALED = b"k8s:enc:"
"""How every sealed value begins."""
GroupResource: TypeAlias = tuple[str, str]
_REGISTRY = len("/registry/")
_ANY: GroupResource = ("*", "*")
_SECRETS: GroupResource = ("", "secrets")
_UNSTORED_GROUPS = frozenset(("masterleases",))
"""Keys below /registry/ that belong to no resource."""


class Provider(Protocol):
    """Seals and opens values without its `prefix`."""

    @property
    def prefix(self) -> bytes: ...

    def name_for(self) -> str: ...

    def name_of(self, sealed: bytes, /) -> str: ...

    def seal(self, value: bytes, context: bytes) -> bytes: ...

    def open(self, sealed: bytes, context: bytes) -> bytes: ...


class LocalKeys:
    """A provider with keys of the configuration: the first seals, all open."""

    def __init__(self, prefix: str, ciphers: Sequence[tuple[str, Cipher]], *, missing: str) -> None:
        self.prefix = prefix.encode()
        self._ciphers = [(name.encode() + b":", cipher) for name, cipher in ciphers]
        self._missing = missing
        """The error if no key has the name in a value."""

    def name_for(self) -> str:
        return (self.prefix + self._ciphers[0][0]).decode()

    def name_of(self, sealed: bytes) -> str:
        name, colon, _ = sealed.partition(b":")
        return (self.prefix + name + colon).decode("utf-8", "replace")

    def seal(self, value: bytes, context: bytes) -> bytes:
        name, cipher = self._ciphers[0]
        return name + cipher.seal(value, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        error = CannotOpen(self._missing)
        for name, cipher in self._ciphers:
            if sealed.startswith(name):
                try:
                    return cipher.open(sealed[len(name) :], context)
                except CannotOpen as failure:  # A name may occur twice, with another key.
                    error = failure
        raise error


class Unencrypted:
    """Stores values as they are."""

    prefix = b""

    def name_for(self) -> str:
        return ""

    def name_of(self, sealed: bytes) -> str:
        return ""

    def seal(self, value: bytes, context: bytes) -> bytes:
        return value

    def open(self, sealed: bytes, context: bytes) -> bytes:
        if sealed.startswith(SEALED):
            raise CannotOpen("identity transformer tried to read encrypted data")
        return sealed


_PLAIN: tuple[Provider, ...] = (Unencrypted(),)


@dataclass(slots=True)
class EncryptionMetrics:
    operations: Counter[Labels] = field(default_factory=Counter)
    durations: HistogramFamily = field(
        default_factory=lambda: HistogramFamily(
            "apiserver_storage_transformation_duration_seconds",
            "Latencies in seconds of value transformation operations.",
            tuple(5e-6 * 2**power for power in range(25)),
        )
    )


@dataclass(frozen=True, slots=True)
class Providers:
    """One version of the configuration: the providers of each resource in their order, and all plug-ins."""

    chains: Mapping[GroupResource, Sequence[Provider]]
    plugins: Sequence[KmsPlugin] = ()

    def of(self, group: str, resource: str) -> Sequence[Provider]:
        chains = self.chains
        return chains.get((group, resource)) or chains.get((group, "*")) or chains.get(_ANY) or _PLAIN


class ProviderEncryption:
    """The configuration in effect, which `replace` changes. Values that it cannot open are left out and reported."""

    is_tolerant = True

    def __init__(self, providers: Providers, *, kms_metrics: KmsMetrics | None = None) -> None:
        self.metrics = EncryptionMetrics()
        self.kms_metrics = kms_metrics
        self._providers = providers
        self._chains: dict[str, tuple[str, Sequence[Provider]]] = {}
        """The resource, for metrics, and its providers, by the beginning of its keys."""
        self._replaced = asyncio.Event()

    @property
    def plugins(self) -> Sequence[KmsPlugin]:
        return self._providers.plugins

    async def replace(self, providers: Providers) -> None:
        """Use another configuration from now on. The old plug-ins are closed after the calls under way."""
        old, self._providers = self._providers, providers
        self._chains.clear()
        self._replaced.set()
        await asyncio.sleep(0)
        for plugin in old.plugins:
            asyncio.get_running_loop().call_later(2 * plugin.timeout, plugin.close)

    async def run(self) -> None:
        """Poll the plug-ins until cancelled."""
        while True:
            self._replaced.clear()
            async with asyncio.TaskGroup() as group:
                polls = [group.create_task(plugin.poll()) for plugin in self.plugins]
                await self._replaced.wait()
                for poll in polls:
                    poll.cancel()

    async def check(self) -> str:
        """Return why plug-ins are not healthy; empty if all are."""
        errors = [await plugin.check() for plugin in self.plugins]
        failed = [f"kms-provider-{number}: {error}" for number, error in enumerate(errors) if error]
        return f"[{', '.join(failed)}]" if len(failed) > 1 else "".join(failed)

    # The Encryption of an encrypted store.

    def name_for(self, key: str) -> str:
        """Return what a value of the key is sealed with now; empty for nothing."""
        return self._chain_of(key)[1][0].name_for()

    def name_of(self, key: str, stored: bytes) -> str:
        """Return what a value was sealed with."""
        for provider in self._chain_of(key)[1]:
            if provider.prefix and stored.startswith(provider.prefix):
                return provider.name_of(stored[len(provider.prefix) :])
        return ""

    def concerns(self, key: str, stored: bytes) -> bool:
        """Whether a stored value must be opened: it is sealed, or its resource has providers."""
        return stored.startswith(SEALED) or self._chain_of(key)[1] is not _PLAIN

    def seal(self, key: str, value: bytes) -> bytes:
        """Return what to store. Raise EncryptionFailed."""
        resource, chain = self._chain_of(key)
        if chain is _PLAIN:
            return value
        provider, started, status = chain[0], perf_counter(), "OK"
        prefix = provider.prefix.decode()
        try:
            return provider.prefix + provider.seal(value, key.encode())
        except CannotOpen as error:
            status = "unknown-non-grpc"
            raise EncryptionFailed(f"{error}{_origin(provider.name_for())}") from None
        finally:
            self._count(resource, "to_storage", prefix, status, perf_counter() - started)

    def open(self, key: str, stored: bytes) -> bytes:
        """Return the value. Raise EncryptionFailed if no provider opens it."""
        resource, chain = self._chain_of(key)
        errors: list[str] = []
        origin = ""
        for provider in chain:
            prefix = provider.prefix
            if not stored.startswith(prefix):
                continue
            sealed, started, label = stored[len(prefix) :], perf_counter(), prefix.decode() or "identity"
            try:
                value = provider.open(sealed, key.encode())
            except CannotOpen as error:
                if prefix:
                    errors.append(str(error))
                    origin = provider.name_of(sealed)
                    self._count(resource, "from_storage", label, "unknown-non-grpc", 0.0)
                continue
            if prefix:
                self._count(resource, "from_storage", label, "OK", perf_counter() - started)
            return value
        if not errors:
            self._count(resource, "from_storage", "unknown", "unknown-non-grpc", 0.0)
            errors.append(
                "no matching prefix found"
                if chain is not _PLAIN
                else "identity transformer tried to read encrypted data"
            )
            origin = stored[:256].partition(b":v1:")[0].decode("ascii", "replace") if stored.startswith(SEALED) else ""
        listed = errors[0] if len(errors) == 1 else f"[{', '.join(dict.fromkeys(errors))}]"
        raise EncryptionFailed(f"{listed}{_origin(origin)}")

    def lacks_key(self, key: str, stored: bytes) -> bool:
        """Whether `fetch` may help to open a value."""
        plugin = self._plugin_of(key, stored) if self.plugins else None
        return plugin is not None and plugin.lacks_seed(stored[len(plugin.prefix) :])

    async def fetch(self, values: Iterable[tuple[str, bytes]]) -> None:
        """Let plug-ins decrypt what is needed to open these values, by key."""
        if not self.plugins:
            return
        wanted: dict[int, tuple[KmsPlugin, list[bytes]]] = {}
        for key, stored in values:
            if (plugin := self._plugin_of(key, stored)) is not None:
                wanted.setdefault(id(plugin), (plugin, []))[1].append(stored[len(plugin.prefix) :])
        for plugin, sealed in wanted.values():
            await plugin.fetch(sealed)

    def _plugin_of(self, key: str, stored: bytes) -> KmsPlugin | None:
        chain = self._chain_of(key)[1]
        return next((plugin for plugin in self.plugins if plugin in chain and stored.startswith(plugin.prefix)), None)

    def _chain_of(self, key: str) -> tuple[str, Sequence[Provider]]:
        end = key.find("/", key.find("/", _REGISTRY) + 1)
        prefix = key[:end]
        chain = self._chains.get(prefix)
        if chain is None:
            chain = self._chains[prefix] = self._choose(key)
        return chain

    def _choose(self, key: str) -> tuple[str, Sequence[Provider]]:
        if not key.startswith("/registry/"):  # The credentials of all servers are as secret as Secrets.
            return "secrets", self._providers.of(*_SECRETS)
        _, _, group, resource, *_ = key.split("/", 4)
        if group in _UNSTORED_GROUPS:
            return resource, _PLAIN
        group = "" if group in ("core", "events.k8s.io") else group
        return f"{resource}.{group}" if group else resource, self._providers.of(group, resource)

    def _count(self, resource: str, transformation: str, prefix: str, status: str, seconds: float) -> None:
        of_provider = (("transformation_type", transformation), ("transformer_prefix", prefix))
        self.metrics.operations[("resource", resource), ("status", status), *of_provider] += 1
        if status == "OK":
            self.metrics.durations.of(of_provider).observe(seconds)


def _origin(name: str) -> str:
    """Return the provider and the key for a message; a key ID of a plug-in is not for everyone."""
    kind, _, rest = name.removeprefix("k8s:enc:").partition(":")
    parts = rest.split(":")
    if kind == "kms":
        return f" (KMS provider {parts[1] if len(parts) > 1 else 'unknown'})"
    if kind and len(parts) > 1:
        return f" (provider {kind}, key {parts[1]})"
    return f" (provider {kind})" if kind else ""
