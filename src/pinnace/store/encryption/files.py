"""Reads what encrypts a store: a file of keys, or an EncryptionConfiguration, which may be reloaded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pinnace.process.clock import SystemClock
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.store.encrypted import EncryptedStore, Encryption
from pinnace.store.encryption_keys import read_keys

if TYPE_CHECKING:
    from pinnace.schema.configuration.reloading import ReloadedFile
    from pinnace.store.encryption.providers import ProviderEncryption, Providers

_LEAST_HEALTH_SECONDS = 10.0
_HEALTH_PAUSE_SECONDS = 0.5


@dataclass(slots=True)
class StoreEncryption:
    """How a store is encrypted; `providers` and `file` are those of an EncryptionConfiguration."""

    encryption: Encryption
    providers: ProviderEncryption | None = None
    file: ReloadedFile | None = None
    store: EncryptedStore | None = None


async def read_encryption(
    key_file: Path | None, configuration: Path | None, *, reloads: bool
) -> StoreEncryption | None:
    """Raise KeyFileError or ConfigurationError for files that cannot be used."""
    if configuration is None:
        if reloads:
            flag = "--encryption-provider-config"
            raise ConfigurationError(f"{flag}-automatic-reload must be set with {flag}")
        return StoreEncryption(read_keys(key_file)) if key_file is not None else None
    if key_file is not None:
        flags = "--encryption-key-file and --encryption-provider-config"
        raise ConfigurationError(f"{flags} cannot be combined; leave one of them out")
    return await _read_configuration(configuration)


async def _read_configuration(path: Path) -> StoreEncryption:
    # Few clusters have such a file.
    from pinnace.schema.configuration.documents import read_file  # noqa: PLC0415
    from pinnace.schema.configuration.reloading import ReloadedFile  # noqa: PLC0415
    from pinnace.store.encryption.configuration import parse_encryption  # noqa: PLC0415
    from pinnace.store.encryption.providers import ProviderEncryption, Providers  # noqa: PLC0415

    clock, providers = SystemClock(), ProviderEncryption(Providers({}))
    parts = StoreEncryption(providers, providers)

    async def apply(content: bytes) -> None:
        parsed = parse_encryption(content, path, clock, providers)
        try:
            await _await_health(parsed)
        except ConfigurationError:
            for plugin in parsed.plugins:
                plugin.close()
            raise
        await providers.replace(parsed)
        if parts.store is not None:
            await parts.store.retry()

    content = read_file(path)
    await providers.replace(parse_encryption(content, path, clock, providers))
    await asyncio.gather(*(plugin.check() for plugin in providers.plugins))  # A plug-in may also start later.
    parts.file = ReloadedFile(path, apply, clock, applied=content)
    return parts


async def _await_health(providers: Providers) -> None:
    """Wait a little until new plug-ins are healthy. Raise ConfigurationError if they are not."""
    errors = [""]
    try:
        async with asyncio.timeout(max(_LEAST_HEALTH_SECONDS, 2 * sum(plugin.timeout for plugin in providers.plugins))):
            while errors := [error for plugin in providers.plugins if (error := await plugin.check())]:
                await asyncio.sleep(_HEALTH_PAUSE_SECONDS)
    except TimeoutError:
        error = ", ".join(errors)
        raise ConfigurationError(f"health check for new transformers failed: {error}") from None
