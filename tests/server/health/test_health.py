"""/readyz and /livez tell the truth about the store, the caches and the background parts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import aiohttp
import pytest
from tests.server.in_process import InProcess, control_plane

from pinnace.cluster.cluster import running
from pinnace.cluster.server_jobs import add_extension_parts
from pinnace.cluster.settings import Settings
from pinnace.model.users import User, authenticated
from pinnace.server.health.checks import KUBERNETES, LIVE_SECONDS
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Removed, WriteFailed
from pinnace.testing.clock import ManualClock


async def lines(api: InProcess, page: str) -> list[str]:
    return (await api.get(f"/{page}{'&' if '?' in page else '?'}verbose")).body.decode().splitlines()


@pytest.mark.parametrize("page", ["healthz", "livez", "readyz"])
async def test_the_checks_that_kubernetes_tests_look_for_are_there(page: str) -> None:
    async with control_plane(clock=ManualClock()) as api:
        add_extension_parts(api.plane)
        known = [line for line in await lines(api, page) if line.removeprefix("[+]").removesuffix(" ok") in KUBERNETES]
        left_out = {"readyz": ["loopback-serving-certificate"]}.get(page, ["etcd-readiness", "informer-sync"])
        assert known == [f"[+]{name} ok" for name in KUBERNETES if name not in left_out]
        assert ("[+]shutdown ok" in await lines(api, page)) == (page == "readyz")


async def test_results_are_counted_by_check_and_page() -> None:
    async with control_plane() as api:
        await api.get("/readyz?exclude=log")
        api.plane.fanout.revision -= 1
        await api.get("/readyz")
        metrics = (await api.get("/metrics/slis")).body.decode().splitlines()
        for line in (
            'kubernetes_healthcheck{name="ping",type="readyz"} 1',
            'kubernetes_healthcheck{name="informer-sync",type="readyz"} 0',
            'kubernetes_healthchecks_total{name="informer-sync",status="error",type="readyz"} 1',
            'kubernetes_healthchecks_total{name="informer-sync",status="success",type="readyz"} 1',
            'kubernetes_healthchecks_total{name="log",status="success",type="readyz"} 1',
        ):
            assert line in metrics
        assert not any('type="livez"' in line for line in metrics)
        assert (await api.delete("/metrics/slis")).body == b"metrics reset\n"
        assert b"ping" not in (await api.get("/metrics/slis")).body


async def test_a_denial_and_a_page_for_people_are_not_to_be_sniffed() -> None:
    async with control_plane() as api:
        denied = await InProcess(api.plane, authenticated(User("jane"))).get("/api/v1/secrets")
        assert (denied.status, denied.header("x-content-type-options")) == (403, ["nosniff"])
        assert (await api.get("/healthz")).header("x-content-type-options") == ["nosniff"]
        assert (await api.get("/healthz/ping")).header("x-content-type-options") == []


async def test_an_unknown_check_cannot_be_excluded() -> None:
    async with control_plane() as api:
        page = await lines(api, "livez?exclude=b&exclude=a&exclude=ping")
        assert page[-2:] == [
            'warn: some health checks cannot be excluded: no matches for "a","b"',
            "livez check passed",
        ]
        assert page[0] == "[+]ping excluded: ok"


async def test_a_failed_part_fails_readyz_at_once_and_livez_when_it_stays_down() -> None:
    clock = ManualClock()
    async with control_plane(clock=clock) as api:

        async def fail() -> None:
            raise OSError("no way")

        api.plane.supervisor.add("odd-part", fail)
        await clock.advance(1)
        page = await lines(api, "readyz")
        assert page[:2] == ["[-]odd-part failed: reason withheld", "[+]ping ok"], "kubectl shows the first lines"
        assert (await api.get("/readyz")).status == 500
        assert "[+]odd-part ok" in await lines(api, "livez")
        reply = await api.get("/readyz/odd-part")
        assert (reply.status, reply.body) == (500, b"internal server error: odd-part is down for 1 s\n")
        await clock.advance(LIVE_SECONDS)
        assert "[-]odd-part failed: reason withheld" in await lines(api, "livez")
        assert (await api.get("/readyz?exclude=odd-part")).status == 200
        metrics = (await api.get("/metrics")).body.decode()
        counted = re.search(r'^pinnace_background_part_failures_total\{part="odd-part"\} (\d+)$', metrics, re.MULTILINE)
        assert counted is not None
        assert int(counted[1]) >= 3


class FullStore(MemoryStore):
    is_full = False

    async def check_write(self) -> None:
        if self.is_full:
            raise WriteFailed("the disk is full")


async def test_a_full_disk_is_not_ready_but_lives() -> None:
    store = FullStore()
    async with control_plane(store) as api:
        store.is_full = True
        assert "[-]etcd-readiness failed: reason withheld" in await lines(api, "readyz")
        assert (await api.get("/livez")).status == 200
        store.is_full = False
        assert (await api.get("/readyz")).body == b"ok"


async def test_a_cache_that_missed_a_change_is_not_ready() -> None:
    async with control_plane() as api:
        api.plane.fanout.revision -= 1
        assert "[-]informer-sync failed: reason withheld" in await lines(api, "readyz")


async def test_a_deleted_data_directory_is_neither_ready_nor_live(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with running(Settings(data_dir=directory)) as cluster:
        api = InProcess(cluster.plane)
        assert (await api.get("/readyz")).body == b"ok"
        directory.rename(tmp_path / "elsewhere")
        assert "[-]etcd failed: reason withheld" in await lines(api, "readyz")
        assert "[-]etcd failed: reason withheld" in await lines(api, "livez")
        (tmp_path / "elsewhere").rename(directory)
        assert (await api.get("/readyz")).body == b"ok"


async def test_a_server_whose_data_directory_was_removed_ends_with_that_reason(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with pytest.raises(Removed, match=f"{directory} was removed .* put the directory back or restore a backup"):
        async with running(Settings(data_dir=directory, controllers=False)):
            shutil.rmtree(directory)
            raise FileNotFoundError(directory / "pki" / "ca.crt")  # As any part that looks for its files there.
    assert not directory.exists()


async def test_a_removed_lock_file_stops_writes_at_once_and_fails_readyz(tmp_path: Path) -> None:
    async with running(Settings(data_dir=tmp_path / "data", controllers=False)) as cluster:
        config_maps = "/api/v1/namespaces/default/configmaps"
        lock = tmp_path / "data" / "state.db-lock"
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {cluster.access.token}"}) as session:

            async def create(name: str) -> tuple[int, str]:
                body = {"metadata": {"name": name}}
                async with session.post(cluster.url + config_maps, json=body, ssl=False) as answer:
                    return answer.status, await answer.text()

            assert (await create("before"))[0] == 201
            lock.rename(tmp_path / "elsewhere")
            status, text = await create("after")
            assert status == 500
            assert f"{lock} was removed or replaced while in use; stop the server, put the file back" in text
            async with session.get(f"{cluster.url}/readyz/etcd", ssl=False) as answer:
                assert str(lock) in await answer.text()
            (tmp_path / "elsewhere").rename(lock)
            assert (await create("again"))[0] == 201


async def test_a_listener_that_fails_harms_neither_writers_nor_caches(caplog: pytest.LogCaptureFixture) -> None:
    async with control_plane() as api:

        def fail(event: object) -> None:
            raise KeyError("odd")

        api.plane.fanout.on_change("/registry/core/configmaps/", fail)
        made = await api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "one"}})
        assert made.status == 201
        assert (await api.get("/api/v1/namespaces/default/configmaps/one")).status == 200
        assert "a listener of /registry/core/configmaps/ failed" in caplog.text
        assert (await api.get("/readyz")).body == b"ok"


async def test_readyz_fails_while_the_server_serves_its_last_requests() -> None:
    async with control_plane() as api:
        api.plane.health.is_ready = True
        assert (await api.get("/readyz")).status == 200
        api.plane.health.is_stopping = True
        assert "[-]shutdown failed: reason withheld" in await lines(api, "readyz")
        assert (await api.get("/readyz/shutdown")).body == b"internal server error: process is shutting down\n"
        assert (await api.get("/livez")).status == 200
