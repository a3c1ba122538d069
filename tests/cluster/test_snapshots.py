"""Snapshots of a cluster: consistent while it serves, restored on either store, with revisions that only grow."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map
from tests.store.etcd.processes import EtcdMember
from typer.testing import CliRunner

from pinnace.cli.command_table import app
from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.cluster.snapshots import restore, save
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.snapshot import read_snapshot
from pinnace.store.store import Damaged, StoreError, TooNew

LOOPS = Settings(controllers=False, scheduler=False)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdSettings]:
    member = EtcdMember(tmp_path / "etcd")
    member.start()
    yield EtcdSettings(endpoints=(("127.0.0.1", member.port),))
    member.stop()


async def test_a_snapshot_moves_from_sqlite_to_etcd_and_back_and_revisions_only_grow(
    tmp_path: Path, etcd: EtcdSettings
) -> None:
    stores: list[tuple[str, EtcdSettings | None]] = [("a", None), ("b", etcd), ("c", None)]
    last, access = 0, None
    data: dict[str, object] = {}
    for turn, (name, store) in enumerate(stores):
        directory = tmp_path / name
        if turn:
            before = stores[turn - 1]
            snapshot = tmp_path / f"{turn}.snapshot"
            await save(snapshot, directory=tmp_path / before[0], etcd=before[1])
            await restore(snapshot, directory=directory, etcd=store)
        async with running(replace(LOOPS, data_dir=directory, etcd=store)) as cluster:
            api = InProcess(cluster.plane)
            for key, value in data.items():
                obj = (await api.get(f"{CONFIG_MAPS}/{key}")).json
                assert obj["data"] == value and int(obj["metadata"]["resourceVersion"]) > last
            expired = await api.get(f"{CONFIG_MAPS}?resourceVersion={max(last, 1)}&resourceVersionMatch=Exact&limit=5")
            assert expired.status == 410 if turn else expired.status == 200
            made = await api.made(CONFIG_MAPS, {**config_map(f"c{turn}"), "data": {"turn": str(turn)}})
            data[f"c{turn}"] = made["data"]
            assert int(made["metadata"]["resourceVersion"]) > last
            last = int((await api.get(CONFIG_MAPS)).version)
            assert access is None or (cluster.access.token, cluster.access.ca) == access
            access = (cluster.access.token, cluster.access.ca)


@pytest.mark.parametrize("is_etcd", [False, True], ids=["sqlite", "etcd"])
async def test_a_snapshot_of_a_cluster_that_serves_is_one_state(
    tmp_path: Path, etcd: EtcdSettings, is_etcd: bool
) -> None:
    """Two objects are changed in turn, the first one first: no state has the second one ahead."""
    store = etcd if is_etcd else None
    async with running(replace(LOOPS, data_dir=tmp_path / "a", etcd=store)) as cluster:
        api = InProcess(cluster.plane)
        for name in ("first", "second"):
            await api.made(CONFIG_MAPS, {**config_map(name), "data": {"n": "0"}})
        turns = 0

        async def write() -> None:
            nonlocal turns
            while True:
                turns += 1
                for name in ("first", "second"):
                    assert (await api.patch(f"{CONFIG_MAPS}/{name}", {"data": {"n": str(turns)}})).status == 200

        writing = asyncio.ensure_future(write())
        taken = []
        for number in range(5):
            while turns < 20 * (number + 1):
                await asyncio.sleep(0)
            path = tmp_path / f"{number}.snapshot"
            await save(path, directory=tmp_path / "a", etcd=store)
            taken.append(read_snapshot(path))
        writing.cancel()
    counts = []
    for snapshot in taken:
        values = {
            record.key.rpartition("/")[2]: record.value
            for record in snapshot.records
            if "configmaps/default/" in record.key
        }
        first, second = (int(values[name].split(b'"n":"')[1].split(b'"')[0]) for name in ("first", "second"))
        assert first - second in (0, 1)
        assert max(record.revision for record in snapshot.records) <= snapshot.revision
        counts.append(first)
    assert counts == sorted(set(counts)) and counts[0] > 0


async def test_a_restore_needs_an_empty_place_and_a_whole_snapshot(tmp_path: Path, etcd: EtcdSettings) -> None:
    async with running(replace(LOOPS, data_dir=tmp_path / "a")):
        pass
    good = tmp_path / "good"
    await save(good, directory=tmp_path / "a", etcd=None)
    assert good.stat().st_mode & 0o077 == 0
    with pytest.raises(StoreError, match="exists already"):
        await save(good, directory=tmp_path / "a", etcd=None)
    with pytest.raises(StoreError, match="exists already"):
        await restore(good, directory=tmp_path / "a", etcd=None)
    await restore(good, directory=tmp_path / "b", etcd=etcd)
    with pytest.raises(StoreError, match="has a cluster already"):
        await restore(good, directory=tmp_path / "c", etcd=etcd)
    lines = gzip.decompress(good.read_bytes()).splitlines(keepends=True)
    broken: dict[str, tuple[bytes, type[StoreError]]] = {
        "cut": (good.read_bytes()[:-200], Damaged),
        "other": (b"hello", Damaged),
        "short": (gzip.compress(b"".join(lines[:-1])), Damaged),
        "changed": (gzip.compress(b"".join(lines[:-3] + lines[-2:])), Damaged),
        "newer": (gzip.compress(lines[0].replace(b'"version":1', b'"version":2') + b"".join(lines[1:])), TooNew),
    }
    for name, (content, error) in broken.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(error):
            await restore(tmp_path / name, directory=tmp_path / "d", etcd=None)
    assert not (tmp_path / "d" / "state.db").exists()


def test_the_command_saves_and_restores_and_says_what_is_wrong(tmp_path: Path) -> None:
    async def start() -> None:
        async with running(replace(LOOPS, data_dir=tmp_path / "a")):
            pass

    asyncio.run(start())
    runner = CliRunner()
    saved = runner.invoke(app, ["snapshot", "save", str(tmp_path / "s"), "--data-dir", str(tmp_path / "a")])
    assert saved.exit_code == 0 and "objects at revision" in saved.output
    restored = runner.invoke(app, ["snapshot", "restore", str(tmp_path / "s"), "--data-dir", str(tmp_path / "b")])
    assert restored.exit_code == 0 and "revisions go on after 1000" in restored.output
    refused = runner.invoke(app, ["snapshot", "restore", str(tmp_path / "s"), "--data-dir", str(tmp_path / "b")])
    assert refused.exit_code == 1 and "empty data directory" in refused.output
