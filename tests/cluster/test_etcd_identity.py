"""An empty etcd, another one or an older copy in place of the right one: no write is taken, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.clients.server_process import ServerProcess
from tests.server.in_process import CONFIG_MAPS, config_map
from tests.store.etcd.processes import EtcdMember
from tests.waiting import until

from pinnace.cluster.snapshots import restore, save
from pinnace.model.objects import Object
from pinnace.store.etcd.settings import EtcdSettings

EMPTY = r"etcd at 127.0.0.1:\d+ has lost the data of this cluster, or is another one: it is empty, expected the store "
OTHER = r"etcd at 127.0.0.1:\d+ has the store [0-9a-f]{32}, expected [0-9a-f]{32}; check --store"
OLDER = r"etcd at 127.0.0.1:\d+ is at revision \d+, expected at least \d+: it was restored from an older backup"


@pytest.fixture
def member(tmp_path: Path) -> Iterator[EtcdMember]:
    member = EtcdMember(tmp_path / "etcd")
    member.start()
    member.wait()
    yield member
    member.stop()


class Server:
    """A server on an etcd, in a process of its own."""

    def __init__(self, directory: Path, member: EtcdMember, *flags: str, data: str = "data") -> None:
        directory.mkdir(exist_ok=True)
        flags = ("--data-dir", str(directory / data), "--store", f"etcd://127.0.0.1:{member.port}", *flags)
        self.process = ServerProcess.start(directory, *flags, "--no-node", "--no-controllers", "--no-scheduler")

    def await_ready(self) -> Server:
        self.process.await_kubeconfig()
        return self

    def ask(self, path: str, body: Object | None = None) -> tuple[int, Object]:
        config = yaml.safe_load(self.process.kubeconfig.read_text())
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(
            config["clusters"][0]["cluster"]["server"] + path,
            data=json.dumps(body).encode() if body is not None else None,
            headers={
                "Authorization": f"Bearer {config['users'][0]['user']['token']}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def create(self, name: str) -> tuple[int, Object]:
        return self.ask(CONFIG_MAPS, config_map(name))

    def names(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.ask(CONFIG_MAPS)[1]["items"]}

    def end(self) -> str:
        """Return what a server has written that ends by itself, with an error."""
        assert self.process.await_end() == 1, self.process.log.read_text()
        return self.process.log.read_text()


def keys_of(member: EtcdMember) -> list[str]:
    return member.control("get", "", "--prefix", "--keys-only").split()


def replace(member: EtcdMember) -> None:
    """Put an empty etcd in place of the right one."""
    member.stop()
    member.wipe()
    member.start()
    member.wait()


def test_an_empty_etcd_takes_no_write_of_a_running_server(member: EtcdMember, tmp_path: Path) -> None:
    server = Server(tmp_path / "run", member).await_ready()
    try:
        assert server.create("old")[0] == 201
        member.control("snapshot", "save", str(tmp_path / "backup"))
        replace(member)
        for number in range(20):
            status, answer = server.create(f"new-{number}")
            assert status == 500 and re.search(EMPTY, answer["message"]), answer
        assert keys_of(member) == []
        member.stop()
        member.restore(tmp_path / "backup")
        member.start()
        until(lambda: server.create("again")[0] == 201)
        assert {"old", "again"} <= server.names()
        assert not any(name.startswith("new-") for name in server.names())
    finally:
        server.process.stop()


def test_an_empty_etcd_is_refused_at_the_start(member: EtcdMember, tmp_path: Path) -> None:
    Server(tmp_path / "run", member).await_ready().process.stop()
    replace(member)
    assert re.search(EMPTY, Server(tmp_path / "run", member).end())
    assert keys_of(member) == []
    server = Server(tmp_path / "run", member, "--accept-data-loss").await_ready()
    assert server.create("new")[0] == 201
    server.process.stop()
    server = Server(tmp_path / "run", member).await_ready()
    assert "new" in server.names()
    server.process.stop()


def test_another_etcd_is_refused(member: EtcdMember, tmp_path: Path) -> None:
    other = EtcdMember(tmp_path / "other", ports=(member.port, member.peer_port))
    server = Server(tmp_path / "run", member).await_ready()
    try:
        assert server.create("old")[0] == 201
        member.stop()
        other.start()
        other.wait()
        second = Server(tmp_path / "second", other).await_ready()
        second.process.stop()
        before = keys_of(other)
        status, answer = server.create("new")
        assert status == 500 and re.search(OTHER, answer["message"]), answer
        assert server.process.stop() == 0
        assert re.search(OTHER, Server(tmp_path / "run", other).end())
        assert keys_of(other) == before
    finally:
        other.stop()


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_an_older_backup_is_refused_unless_the_loss_is_accepted(
    member: EtcdMember, tmp_path: Path, is_killed: bool
) -> None:
    server = Server(tmp_path / "run", member).await_ready()
    assert server.create("old")[0] == 201
    member.control("snapshot", "save", str(tmp_path / "backup"))
    status, lost = server.create("lost")
    assert status == 201
    member.stop()
    member.restore(tmp_path / "backup")
    member.start()
    member.wait()
    status, answer = server.create("new")
    assert status == 500 and re.search(OLDER, answer["message"]), answer
    if is_killed:
        server.process.process.kill()
        server.process.process.wait()
    else:
        server.process.stop()
    assert "; start with --accept-data-loss to go on without them" in (text := Server(tmp_path / "run", member).end())
    assert re.search(OLDER, text)
    server = Server(tmp_path / "run", member, "--accept-data-loss").await_ready()
    try:
        assert server.names() >= {"old"} and "lost" not in server.names()
        status, made = server.create("new")
        assert status == 201
        assert int(made["metadata"]["resourceVersion"]) > int(lost["metadata"]["resourceVersion"])
    finally:
        server.process.stop()


def test_a_restored_snapshot_is_the_store_of_its_data_directory(member: EtcdMember, tmp_path: Path) -> None:
    server = Server(tmp_path / "run", member).await_ready()
    assert server.create("old")[0] == 201
    server.process.stop()
    etcd, data = EtcdSettings(endpoints=(("127.0.0.1", member.port),)), tmp_path / "run" / "data"
    asyncio.run(save(tmp_path / "snapshot", directory=data, etcd=etcd))
    replace(member)
    asyncio.run(restore(tmp_path / "snapshot", directory=data, etcd=etcd))
    server = Server(tmp_path / "run", member).await_ready()
    assert "old" in server.names()
    server.process.stop()


def test_a_damaged_memory_is_reported(member: EtcdMember, tmp_path: Path) -> None:
    Server(tmp_path / "run", member).await_ready().process.stop()
    memory = tmp_path / "run" / "data" / "etcd-store"
    assert memory.stat().st_mode & 0o777 == 0o600
    os.truncate(memory, 7)
    assert f"{memory} is damaged" in Server(tmp_path / "run", member).end()
