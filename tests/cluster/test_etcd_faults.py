"""A cluster on an etcd with a problem: requests fail with the reason, /readyz names it, and the server recovers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map
from tests.store.etcd.certificates import EtcdCertificates
from tests.store.etcd.deadlines import SHORT, short_calls
from tests.store.etcd.processes import EtcdMember, etcd_cluster
from tests.store.etcd.proxy import Proxy

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.store import StoreError

OLD, NEW = f"{CONFIG_MAPS}/old", f"{CONFIG_MAPS}/new"


@pytest.fixture
def member(tmp_path: Path) -> Iterator[EtcdMember]:
    member = EtcdMember(tmp_path / "etcd", flags=("--quota-backend-bytes=8000000",))
    member.start()
    yield member
    member.stop()


def settings_of(*members: EtcdMember) -> EtcdSettings:
    return EtcdSettings(endpoints=tuple(("127.0.0.1", member.port) for member in members))


@asynccontextmanager
async def cluster_on(etcd: EtcdSettings, data: Path, *, accept_data_loss: bool = False) -> AsyncIterator[InProcess]:
    settings = Settings(data_dir=data, etcd=etcd, controllers=False, scheduler=False, accept_data_loss=accept_data_loss)
    async with running(settings) as cluster:
        yield InProcess(cluster.plane)


@pytest.fixture(autouse=True)
def recovers_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parts count as well soon, and see alarms at once, so that the test need not wait."""
    monkeypatch.setattr("pinnace.process.supervisor.RECOVERY_SECONDS", SHORT)
    monkeypatch.setattr("pinnace.store.etcd.store._WRITE_CHECK_SECONDS", 0.0)


async def wait_until_ready(api: InProcess) -> None:
    async with asyncio.timeout(60):
        while (await api.get("/readyz")).status != 200:
            await asyncio.sleep(0.05)


async def reason_of(api: InProcess, check: str) -> str:
    """Wait until /readyz fails by a check, and return what its own page says."""
    async with asyncio.timeout(60):
        while f"[-]{check} failed".encode() not in (await api.get("/readyz")).body:
            await asyncio.sleep(0.05)
    return (await api.get(f"/readyz/{check}")).body.decode()


async def test_without_space_writes_fail_until_there_is_space_again(member: EtcdMember, tmp_path: Path) -> None:
    async with cluster_on(settings_of(member), tmp_path / "data") as api:
        made = await api.made(CONFIG_MAPS, config_map("old"))
        for turn in range(200):
            body = {**config_map("old"), "data": {"big": "x" * 500_000, "turn": str(turn)}}
            refused = await api.put(OLD, body)
            if refused.status != 200:
                break
        assert refused.status == 500 and "space exceeded" in refused.message
        assert "NOSPACE" in await reason_of(api, "etcd-readiness")
        assert (await api.get(OLD)).json["metadata"]["uid"] == made["metadata"]["uid"]
        member.control("compact", member.control("get", "x", "-w", "fields").split('"Revision" : ')[1].split()[0])
        member.control("defrag")
        member.control("alarm", "disarm")
        await wait_until_ready(api)
        await api.made(CONFIG_MAPS, config_map("new"))


async def test_after_a_restore_from_an_older_backup_watches_end_and_clients_list_again(
    member: EtcdMember, tmp_path: Path
) -> None:
    async with cluster_on(settings_of(member), tmp_path / "data", accept_data_loss=True) as api:
        await api.made(CONFIG_MAPS, config_map("old"))
        member.control("snapshot", "save", str(tmp_path / "backup"))
        lost = await api.made(CONFIG_MAPS, config_map("new"))
        watch = await api.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={lost['metadata']['resourceVersion']}")
        member.stop()
        member.restore(tmp_path / "backup")
        member.start()
        async with asyncio.timeout(60):
            (event,) = await watch.rest()
        assert event["type"] == "ERROR" and event["object"]["code"] == 410
        await wait_until_ready(api)
        listed = await api.get(CONFIG_MAPS)
        assert "old" in listed.names and "new" not in listed.names
        assert int(listed.version) > int(lost["metadata"]["resourceVersion"])
        again = await api.made(CONFIG_MAPS, config_map("new"))
        assert int(again["metadata"]["resourceVersion"]) > int(listed.version)


@pytest.mark.parametrize(
    ("issue", "reason"),
    [
        (EtcdCertificates.issue_server, "certificate has expired"),
        (EtcdCertificates.issue_client, "requires a valid client certificate"),
    ],
    ids=["server", "client"],
)
async def test_an_expired_certificate_is_named_and_a_renewed_one_is_used(
    issue: Callable[..., None],
    reason: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    certificates = EtcdCertificates(tmp_path / "pki")
    member = certificates.member(tmp_path / "etcd")
    member.start()
    request.addfinalizer(member.stop)
    async with cluster_on(certificates.settings(member), tmp_path / "data") as api:
        made = await api.made(CONFIG_MAPS, config_map("old"))
        with short_calls(1.0):
            member.stop()
            issue(certificates, is_expired=True)
            member.start()
            async with asyncio.timeout(60):
                while reason not in await reason_of(api, "etcd"):
                    await asyncio.sleep(0.05)
            refused = await api.post(CONFIG_MAPS, config_map("new"))
            assert refused.status == 500 and reason in refused.message
            assert (await api.get(OLD)).status == 500
        issue(certificates)
        await wait_until_ready(api)
        assert (await api.get(OLD)).json == made
        await api.made(CONFIG_MAPS, config_map("newer"))


async def test_an_etcd_that_answers_too_late_is_named_until_it_is_faster(member: EtcdMember, tmp_path: Path) -> None:
    proxy = Proxy(member.port)
    await proxy.start()
    try:
        async with cluster_on(EtcdSettings(endpoints=(("127.0.0.1", proxy.port),)), tmp_path / "data") as api:
            made = await api.made(CONFIG_MAPS, config_map("old"))
            with short_calls():
                proxy.delay = 4 * SHORT
                refused = await api.post(CONFIG_MAPS, config_map("late"))
                assert refused.status == 500 and "did not answer a write in time" in refused.message
                stale = await api.get(OLD)
                assert stale.status == 500 and "cannot be read" in stale.message
                assert "cannot be read" in await reason_of(api, "etcd")
            proxy.delay = SHORT / 20
            await wait_until_ready(api)
            assert (await api.get(OLD)).json == made
            await api.made(CONFIG_MAPS, config_map("new"))
    finally:
        await proxy.stop()


async def test_a_user_without_permission_is_named_until_it_is_granted(member: EtcdMember, tmp_path: Path) -> None:
    member.wait()
    member.control("user", "add", "root:secret")
    member.control("user", "grant-role", "root", "root")
    member.control("user", "add", "pinnace:word")
    member.control("role", "add", "objects")
    member.control("role", "grant-permission", "objects", "readwrite", "--prefix=true", "/registry/")
    member.control("user", "grant-role", "pinnace", "objects")
    member.control("auth", "enable")
    (tmp_path / "password").write_text("word\n")
    etcd = EtcdSettings(endpoints=(("127.0.0.1", member.port),), user="pinnace", password_file=tmp_path / "password")
    with pytest.raises(StoreError, match="permission denied"):
        async with cluster_on(etcd, tmp_path / "data"):
            pass
    root = ("--user=root:secret", "role")
    member.control(*root, "grant-permission", "objects", "readwrite", "--prefix=true", "/pinnace/")
    if "3.5.1\n" in member.control("version"):
        with pytest.raises(StoreError, match=r"permission denied; before 3\.5\.8"):
            async with cluster_on(etcd, tmp_path / "data"):
                pass
    member.control(*root, "grant-permission", "objects", "read", "--prefix=true", "")
    async with cluster_on(etcd, tmp_path / "data") as api:
        made = await api.made(CONFIG_MAPS, config_map("old"))
        with short_calls(1.0):
            member.control(*root, "revoke-permission", "objects", "--prefix=true", "")
            member.control(*root, "revoke-permission", "objects", "--prefix=true", "/registry/")
            member.control(*root, "revoke-permission", "objects", "--prefix=true", "/pinnace/")
            refused = await api.post(CONFIG_MAPS, config_map("new"))
            assert refused.status == 500 and "permission denied" in refused.message
            assert "permission denied" in await reason_of(api, "etcd")
        for prefix, kind in (("/registry/", "readwrite"), ("/pinnace/", "readwrite"), ("", "read")):
            member.control(*root, "grant-permission", "objects", kind, "--prefix=true", prefix)
        await wait_until_ready(api)
        assert (await api.get(OLD)).json == made
        await api.made(CONFIG_MAPS, config_map("new"))


async def test_a_member_that_lost_its_leader_answers_no_read_without_a_revision(tmp_path: Path) -> None:
    members = etcd_cluster(tmp_path)
    for member in members:
        member.start()
    try:
        async with cluster_on(settings_of(members[0]), tmp_path / "data") as api:
            made = await api.made(CONFIG_MAPS, config_map("old"))
            with short_calls():
                for member in members[1:]:
                    member.pause()
                stale = await api.get(OLD)
                assert stale.status == 500 and "cannot be read" in stale.message
                assert (await api.get(f"{OLD}?resourceVersion=0")).json == made
                assert "cannot be read" in await reason_of(api, "etcd")
            for member in members[1:]:
                member.resume()
            await wait_until_ready(api)
            assert (await api.get(OLD)).json == made
    finally:
        for member in members:
            member.stop()
