"""The state of a KMS plug-in: seeds, key IDs and the time for which a seed encrypts without a good status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.store.encryption.kms_plugin import Plugin, running_plugin

from pinnace.store.encryption.ciphers import CannotOpen
from pinnace.store.encryption.kms import KmsMetrics, KmsPlugin, KmsSettings
from pinnace.testing.clock import ManualClock


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[Plugin]:
    async with running_plugin(tmp_path) as plugin:
        yield plugin


def client_of(plugin: Plugin, clock: ManualClock, *, timeout: float = 60) -> KmsPlugin:
    return KmsPlugin(KmsSettings("vault", str(plugin.socket), timeout), clock, KmsMetrics())


async def test_a_seed_encrypts_for_three_minutes_after_the_last_good_status(plugin: Plugin) -> None:
    clock = ManualClock()
    client = client_of(plugin, clock)
    assert await client.check() == ""
    await clock.advance(60)
    plugin.healthz = "out of order"
    error = "kmsv2 Provider vault is not healthy, error: got unexpected healthz status: out of order"
    assert await client.check() == error
    await clock.advance(180)  # The key ID in the answer was good, which counts, as in Kubernetes.
    client.seal(b"a", b"")
    await clock.advance(1)
    with pytest.raises(CannotOpen, match=r"encryptedDEKSource with keyID hash \"sha256:[0-9a-f]{64}\" expired at"):
        client.seal(b"a", b"")
    plugin.healthz = "ok"
    assert await client.check() == ""
    assert client.open(client.seal(b"a", b""), b"") == b"a"
    assert plugin.calls == {"Status": 3, "Encrypt": 1}


async def test_values_of_an_old_key_id_open_after_a_new_one_and_have_another_name(plugin: Plugin) -> None:
    clock = ManualClock()
    client = client_of(plugin, clock)
    await client.check()
    sealed = client.seal(b"a", b"")
    plugin.key_id = "key-2"
    await clock.advance(60)
    await client.check()
    assert client.open(sealed, b"") == b"a"
    assert client.name_of(sealed) == "k8s:enc:kms:v2:vault:key-1" != client.name_for()
    assert plugin.calls == {"Status": 2, "Encrypt": 2}


async def test_a_status_is_reused_for_a_while(plugin: Plugin) -> None:
    clock = ManualClock()
    client = client_of(plugin, clock)
    await asyncio.gather(*(client.check() for _ in range(10)))
    await clock.advance(19)
    await client.check()
    assert plugin.calls["Status"] == 1


@pytest.mark.parametrize(
    ("key_id", "error"),
    [
        ("", 'got invalid KMSv2 KeyID hash "": keyID is empty'),
        ("k" * 1025, "keyID is 1025 bytes, which exceeds the max size of 1024"),
    ],
)
async def test_a_bad_key_id_is_refused(plugin: Plugin, key_id: str, error: str) -> None:
    plugin.key_id = key_id
    client = client_of(plugin, ManualClock())
    assert error in await client.check()
    with pytest.raises(CannotOpen, match="got unexpected nil transformer"):
        client.seal(b"a", b"")


async def test_a_plug_in_that_starts_late_or_again_is_found(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_plugin(tmp_path) as plugin:
        client = client_of(plugin, clock)
        await client.check()
        sealed = client.seal(b"a", b"")
    (tmp_path / "kms.sock").unlink(missing_ok=True)
    other = client_of(plugin, clock)
    checking = asyncio.create_task(other.check())
    async with running_plugin(tmp_path):
        assert await checking == ""
        await other.fetch([sealed])
        assert other.open(sealed, b"") == b"a"
