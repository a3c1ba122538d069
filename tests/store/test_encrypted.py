"""Encrypted values stay encrypted on disk, open with the right keys only, and can be encrypted again."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path

import pytest

from pinnace.store.encrypted import SECRETS, EncryptedStore, refuse_sealed
from pinnace.store.encryption_keys import SEALED, EncryptionKeys, KeyFileError, MissingKey, read_keys
from pinnace.store.memory import MemoryStore
from pinnace.store.sqlite.store import SqliteStore
from pinnace.store.store import Batch, Conflict, Damaged, Store

OLD, NEW = b"o" * 32, b"n" * 32
KEY = SECRETS + "default/password"
PLAIN = b'{"data":{"password":"correct horse battery staple"}}'


async def value_of(store: Store, key: str = KEY) -> bytes:
    record = await store.get(key)
    assert record is not None
    return record.value


async def test_secrets_are_sealed_below_and_everything_else_is_not() -> None:
    inner = MemoryStore()
    store = EncryptedStore(inner, EncryptionKeys({"k1": OLD}))
    await store.put(KEY, PLAIN, expected=0)
    await store.put("/registry/core/configmaps/default/a", PLAIN, expected=0)
    assert (await value_of(inner)).startswith(SEALED + b"k1:")
    assert b"horse" not in await value_of(inner)
    assert await value_of(inner, "/registry/core/configmaps/default/a") is PLAIN
    assert [record.value for record in (await store.list("/registry/")).records] == [PLAIN, PLAIN]


async def test_equal_values_are_not_equal_below() -> None:
    inner = MemoryStore()
    store = EncryptedStore(inner, EncryptionKeys({"k1": OLD}))
    await store.put(KEY, PLAIN, expected=None)
    first = await value_of(inner)
    await store.put(KEY, PLAIN, expected=None)
    assert await value_of(inner) != first


async def test_followers_watchers_and_losers_see_open_values() -> None:
    store = EncryptedStore(MemoryStore(), EncryptionKeys({"k1": OLD}))
    followed: Batch = []
    store.follow(followed.extend)
    await store.put(KEY, PLAIN, expected=0)
    await store.put(KEY, b"2", expected=1)
    await store.delete(KEY, expected=2)
    watched: Batch = []
    async with asyncio.timeout(60):
        async for batch in store.watch(SECRETS, since=0):
            watched += batch
            if watched[-1].revision == 3:
                break
    assert [change.value for change in followed] == [PLAIN, b"2", None]
    assert [change.previous and change.previous.value for change in followed] == [None, PLAIN, b"2"]
    assert watched == followed
    await store.put(KEY, PLAIN, expected=0)
    with pytest.raises(Conflict) as refused:
        await store.put(KEY, b"3", expected=0)
    assert refused.value.current is not None and refused.value.current.value == PLAIN
    assert (await store.list(SECRETS, revision=1)).records[0].value == PLAIN


async def test_after_a_rotation_the_old_key_is_needed_until_all_is_sealed_anew() -> None:
    inner = MemoryStore()
    await EncryptedStore(inner, EncryptionKeys({"old": OLD})).put(KEY, PLAIN, expected=0)
    with pytest.raises(MissingKey, match="encrypted with the key 'old', which is not in the encryption key file"):
        await EncryptedStore(inner, EncryptionKeys({"new": NEW})).get(KEY)
    both = EncryptedStore(inner, EncryptionKeys({"new": NEW, "old": OLD}))
    assert await value_of(both) == PLAIN
    assert (await both.reseal(), await both.reseal()) == (1, 0)
    assert await value_of(EncryptedStore(inner, EncryptionKeys({"new": NEW}))) == PLAIN


async def test_plain_values_can_be_read_and_are_encrypted_and_leave_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    inner = await SqliteStore.open(path)
    for number in range(50):
        await inner.put(f"{KEY}-{number}", PLAIN, expected=0)
    await inner.close()
    inner = await SqliteStore.open(path)
    store = EncryptedStore(inner, EncryptionKeys({"k1": OLD}))
    assert await value_of(store, f"{KEY}-7") == PLAIN
    assert await store.reseal() == 50
    assert await value_of(store, f"{KEY}-7") == PLAIN
    await store.close()
    for file in tmp_path.iterdir():
        assert b"horse" not in file.read_bytes(), file.name
    with pytest.raises(MissingKey):
        inner = await SqliteStore.open(path)
        await refuse_sealed(inner)
    await inner.close()


async def test_another_key_under_the_same_name_is_distinguished_from_the_right_one() -> None:
    inner = MemoryStore()
    await EncryptedStore(inner, EncryptionKeys({"k1": OLD})).put(KEY, PLAIN, expected=0)
    with pytest.raises(Damaged, match="has another key under that name"):
        await EncryptedStore(inner, EncryptionKeys({"k1": NEW})).list("")


@pytest.mark.parametrize("harm", ["moved", "altered", "cut", "bare"])
async def test_a_sealed_value_that_was_tampered_with_does_not_open(harm: str) -> None:
    inner, keys = MemoryStore(), EncryptionKeys({"k1": OLD})
    sealed = keys.seal(KEY, PLAIN)
    key = KEY + "-of-another" if harm == "moved" else KEY
    bad = {"moved": sealed, "altered": sealed[:-1] + bytes([sealed[-1] ^ 1]), "cut": sealed[:-20], "bare": sealed[:21]}
    await inner.put(key, bad[harm], expected=0)
    with pytest.raises(Damaged):
        await EncryptedStore(inner, keys).get(key)


def test_a_key_file_lists_the_newest_key_first(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# rotated in May\nnew:{b64encode(NEW).decode()}\n\nold: {b64encode(OLD).decode()}\n")
    keys = read_keys(path)
    assert keys.newest == "new" and list(keys.keys) == ["new", "old"]
    assert b64encode(NEW).decode() not in repr(keys) and "nnnn" not in repr(keys)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read"),
        ("", "has no key"),
        ("k1", "line 1: expected NAME:KEY"),
        ("a b:AAAA", "line 1: expected NAME:KEY"),
        ("k1:§", "not base64"),
        ("k1:c2VjcmV0", "has 6 bytes, expected 32"),
        (f"k1:{b64encode(OLD).decode()}\nk1:{b64encode(NEW).decode()}", "line 2: there is a key 'k1' already"),
    ],
)
def test_a_bad_key_file_is_refused_without_showing_a_key(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "keys"
    if text is not None:
        path.write_text(text)
    with pytest.raises(KeyFileError) as refused:
        read_keys(path)
    assert why in str(refused.value) and "c2VjcmV0" not in str(refused.value)
