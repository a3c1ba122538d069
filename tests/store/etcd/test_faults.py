"""etcd that is gone, cut off, compacted, full, restored or protected: what the store says, and that it recovers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.store.etcd.certificates import EtcdCertificates
from tests.store.etcd.processes import EtcdMember
from tests.store.etcd.proxy import Proxy

from pinnace.store.etcd import client, transactions
from pinnace.store.etcd.settings import EtcdSettings, EtcdSettingsError, parse_endpoints
from pinnace.store.etcd.store import EtcdStore
from pinnace.store.store import Batch, Compacted, Conflict, Damaged, StoreError, ValueTooLarge, WriteFailed

SHORT = 1.0


@pytest.fixture
def member(tmp_path: Path) -> Iterator[EtcdMember]:
    member = EtcdMember(tmp_path / "etcd", flags=("--quota-backend-bytes=4000000",))
    member.start()
    yield member
    member.stop()


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "CALL_SECONDS", SHORT)
    monkeypatch.setattr("pinnace.store.etcd.store._CHECK_SECONDS", SHORT)


def settings(port: int) -> EtcdSettings:
    return EtcdSettings(endpoints=(("127.0.0.1", port),))


@asynccontextmanager
async def opened(port: int, *, accept_data_loss: bool = False) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(settings(port), prefix="/a/", accept_data_loss=accept_data_loss)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def proxied(member: EtcdMember) -> AsyncIterator[tuple[Proxy, EtcdStore]]:
    proxy = Proxy(member.port)
    await proxy.start()
    try:
        async with opened(proxy.port) as store:
            yield proxy, store
    finally:
        await proxy.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def succeed(store: EtcdStore, key: str, value: bytes = b"v") -> int:
    """Put until it succeeds."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.put(key, value, expected=None)
            except WriteFailed:
                await asyncio.sleep(0.05)


async def test_while_etcd_is_gone_calls_fail_with_the_reason_and_afterwards_all_goes_on(
    member: EtcdMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(member.port) as store:
        followed: Batch = []
        store.follow(followed.extend)
        first = await store.put("/a/1", b"1", expected=0)
        member.kill()
        with pytest.raises(WriteFailed, match=rf"127\.0\.0\.1:{member.port} did not answer a write"):
            await store.put("/a/2", b"2", expected=0)
        with pytest.raises(StoreError, match="cannot be read"):
            await store.check_read()
        with pytest.raises(WriteFailed):
            await store.check_write()
        member.start()
        monkeypatch.undo()
        second = await succeed(store, "/a/3")
        await store.sync()
        await until(lambda: not store._feed.error)
        await store.check_read()
        await store.check_write()
        assert second > first
        assert [change.key for change in followed if change.key != "/a/2"] == ["/a/1", "/a/3"]


async def test_a_read_barrier_fails_while_the_connection_is_cut_and_no_change_is_missed(
    member: EtcdMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied(member) as (proxy, store), opened(member.port) as other:
        followed: Batch = []
        store.follow(followed.extend)
        proxy.cut()
        monkeypatch.setattr(client.EtcdClient.call, "__kwdefaults__", {"seconds": SHORT})
        with pytest.raises(StoreError, match="cannot be read"):
            await store.sync()
        revisions = [await other.put(f"/a/{n}", b"", expected=0) for n in range(5)]
        proxy.mend()
        monkeypatch.undo()
        async with asyncio.timeout(60):
            while store.revision < revisions[-1]:
                await asyncio.sleep(0.02)
        await store.sync()
        assert [change.revision for change in followed] == revisions


async def test_a_connection_that_is_open_but_silent_is_given_up(
    member: EtcdMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.process.grpc.connection.PING_SECONDS", 0.3)
    monkeypatch.setattr("pinnace.process.grpc.connection.PING_ANSWER_SECONDS", 0.3)
    async with proxied(member) as (proxy, store):
        proxy.hold()
        await until(lambda: bool(store._feed.error))
        assert "silent" in store._feed.error
        proxy.release()
        monkeypatch.undo()
        await succeed(store, "/a/1")


async def test_history_that_was_compacted_while_the_connection_was_cut_is_a_gap(member: EtcdMember) -> None:
    async with proxied(member) as (proxy, store), opened(member.port) as other:
        await store.put("/a/kept", b"1", expected=0)
        await store.put("/a/gone", b"1", expected=0)
        gaps: list[int] = []
        followed: Batch = []
        store.follow(followed.extend, on_gap=gaps.append)
        watch = store.watch("/a/", since=store.revision)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        proxy.cut()
        await other.put("/a/new", b"2", expected=0)
        await other.delete("/a/gone", expected=None)
        await other.put("/a/kept", b"2", expected=None)
        await other.compact(other.revision)
        proxy.mend()
        with pytest.raises(Compacted):
            async with asyncio.timeout(60):
                await waiting
        assert gaps == [other.revision]
        assert [(change.key, change.value) for change in followed] == [
            ("/a/new", b"2"),
            ("/a/kept", b"2"),
            ("/a/gone", None),
        ]
        assert await store.list("") == await other.list("")
        revision = await store.put("/a/last", b"", expected=0)
        assert followed[-1].revision == revision


async def test_after_a_restore_from_an_older_backup_revisions_go_on_above_all_that_were_seen(
    member: EtcdMember, tmp_path: Path
) -> None:
    async with opened(member.port, accept_data_loss=True) as store:
        old = await store.put("/a/1", b"old", expected=0)
        backup = tmp_path / "backup"
        member.control("snapshot", "save", str(backup))
        lost = [await store.put("/a/1", b"new", expected=old)]
        lost += [await store.put(f"/a/lost{n}", b"", expected=0) for n in range(3)]
        gaps: list[int] = []
        followed: Batch = []
        store.follow(followed.extend, on_gap=gaps.append)
        member.stop()
        member.restore(backup)
        member.start()
        await until(lambda: bool(gaps))
        record = await store.get("/a/1")
        assert record is not None and record.value == b"old" and record.revision > lost[-1]
        assert gaps[0] >= record.revision
        assert {change.key for change in followed} == {"/a/1", "/a/lost0", "/a/lost1", "/a/lost2"}
        with pytest.raises(Conflict):
            await store.put("/a/1", b"stale", expected=lost[0])
        newest = await store.put("/a/1", b"newest", expected=record.revision)
        async with opened(member.port) as other:
            assert other.revision == newest
            assert await other.list("") == await store.list("")


async def test_an_etcd_that_lost_everything_is_refused(member: EtcdMember) -> None:
    async with opened(member.port) as store:
        await store.put("/a/1", b"", expected=0)
        member.stop()
        member.wipe()
        member.start()
        await until(lambda: "lost the data" in store._feed.error)
        assert await store.get("/a/1") is not None
        with pytest.raises(StoreError, match="lost the data of this cluster"):
            await store.check_read()


async def test_without_space_writes_fail_with_the_reason_until_there_is_space_again(member: EtcdMember) -> None:
    async with opened(member.port) as store:
        with pytest.raises(WriteFailed, match=r"space exceeded.*defragment"):
            for _ in range(200):
                await store.put("/a/big", b"x" * 100_000, expected=None)
        with pytest.raises(WriteFailed, match="NOSPACE"):
            await store.check_write()
        await store.sync()
        await store.check_read()
        await store.compact(store.revision)
        member.control("defrag")
        member.control("alarm", "disarm")
        await succeed(store, "/a/big")
        await store.check_write()


async def test_a_value_that_is_too_large_for_etcd_is_refused_and_harms_no_other(member: EtcdMember) -> None:
    async with opened(member.port) as store:
        answers = await asyncio.gather(
            store.put("/a/1", b"x" * 3_000_000, expected=0), store.put("/a/2", b"", expected=0), return_exceptions=True
        )
        assert isinstance(answers[0], ValueTooLarge) and isinstance(answers[1], int)


async def test_a_garbled_base_is_refused(member: EtcdMember) -> None:
    async with opened(member.port):
        pass
    member.control("put", "/pinnace/revisions", "junk")
    with pytest.raises(Damaged, match="expected a number"):
        await EtcdStore.open(settings(member.port))


@pytest.mark.parametrize("is_expired", [False, True], ids=["valid", "expired"])
async def test_tls_with_client_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_expired: bool) -> None:
    certificates = EtcdCertificates(tmp_path / "pki")
    certificates.issue_server(is_expired=is_expired)
    member = certificates.member(tmp_path / "etcd")
    member.start()
    member.wait()
    full = certificates.settings(member)
    try:
        if is_expired:
            monkeypatch.setattr(client.EtcdClient.call, "__kwdefaults__", {"seconds": 5 * SHORT})  # For a handshake.
            with pytest.raises(StoreError, match="certificate has expired"):
                await EtcdStore.open(full)
            return
        store = await EtcdStore.open(full, prefix="/a/")
        await store.put("/a/1", b"x" * 1_000_000, expected=0)
        await store.close()
        monkeypatch.setattr(client.EtcdClient.call, "__kwdefaults__", {"seconds": SHORT})
        with pytest.raises(StoreError, match="cannot be read"):
            await EtcdStore.open(EtcdSettings(endpoints=full.endpoints, ca_file=full.ca_file))
        with pytest.raises(EtcdSettingsError, match=r"check .*missing"):
            await EtcdStore.open(EtcdSettings(endpoints=full.endpoints, ca_file=tmp_path / "missing"))
    finally:
        member.stop()


async def test_a_user_is_authenticated_and_again_when_its_token_is_forgotten(
    member: EtcdMember, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                member.control("user", "add", "root:secret")
                break
            except subprocess.CalledProcessError:
                await asyncio.sleep(0.1)
    member.control("user", "grant-role", "root", "root")
    member.control("auth", "enable")
    password = tmp_path / "password"
    password.write_text("wrong\n")
    named = EtcdSettings(endpoints=(("127.0.0.1", member.port),), user="root", password_file=password)
    with pytest.raises(StoreError, match="cannot be read"):
        await EtcdStore.open(settings(member.port))
    with pytest.raises(StoreError, match="authentication failed"):
        await EtcdStore.open(named)
    password.write_text("secret\n")
    store = await EtcdStore.open(named, prefix="/a/")
    try:
        await store.put("/a/1", b"", expected=0)
        member.stop()
        member.start()  # Tokens are in the memory of a member.
        await succeed(store, "/a/2")
        await store.sync()
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("etcd://a:1,b:2", (("a", 1), ("b", 2))),
        ("etcd://a", (("a", 2379),)),
        ("etcd://[::1]:5/", (("::1", 5),)),
    ],
)
def test_addresses_are_parsed(address: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert parse_endpoints(address) == expected


@pytest.mark.parametrize(
    "address", ["http://a:1", "etcd://", "etcd://a:x", "etcd://a:1,", "etcd://u@a:1", "etcd://a/b"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(EtcdSettingsError):
        parse_endpoints(address)
