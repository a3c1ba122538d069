"""/statusz, /flagz and /debug/pprof answer as those of Kubernetes 1.37, to those who may read them."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator

import pytest
from tests.server.in_process import InProcess

from pinnace.cluster.cluster import running
from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import Settings
from pinnace.model.users import User
from pinnace.store.memory import MemoryStore

ALL = "only the following media types are accepted: application/json, application/yaml, text/plain"


@pytest.fixture
async def server() -> AsyncIterator[InProcess]:
    plane = await build(Settings(flags={"port": "0", "audit-policy-file": ""}), MemoryStore())
    yield InProcess(plane)
    await plane.close()


async def test_the_status_of_the_server_is_text(server: InProcess) -> None:
    reply = await server.get("/statusz")
    assert (reply.status, reply.header("content-type")) == (200, ["text/plain; charset=utf-8"])
    lines = reply.body.decode().splitlines()
    assert lines[:2] == ["", "apiserver statusz"]
    assert lines[2].startswith("Warning: This endpoint is not meant to be machine parseable")
    assert re.fullmatch(r"Up: 0 hr 00 min \d\d sec", lines[5])
    assert lines[-2:] == [
        "Emulation version: 1.37",
        "Paths: /flagz /healthz /livez /metrics /readyz /statusz /version",
    ]


async def test_the_flags_are_text(server: InProcess) -> None:
    text = (await server.get("/flagz")).body.decode()
    assert text.startswith("\napiserver flagz\nWarning: ")
    assert text.endswith("purposes only.\naudit-policy-file=\nport=0\n")


@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
async def test_both_pages_have_structured_versions(server: InProcess, media_type: str) -> None:
    accept = f"{media_type};v=v1beta1;g=config.k8s.io;as=Flagz"
    reply = await server.get("/flagz", accept=accept)
    assert reply.header("content-type") == [f"{media_type};g=config.k8s.io;v=v1beta1;as=Flagz"]
    assert not reply.header("warning")
    if media_type == "application/json":
        assert reply.json == {
            "kind": "Flagz",
            "apiVersion": "config.k8s.io/v1beta1",
            "metadata": {"name": "apiserver"},
            "flags": {"audit-policy-file": "", "port": "0"},
        }
    older = await server.get("/statusz", accept=f"{media_type};v=v1alpha1;g=config.k8s.io;as=Statusz")
    text = "This version of the statusz endpoint is deprecated. Please use a newer version."
    assert older.header("warning") == [f'299 - "{text}"']


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "application/yaml",
        "text/html",
        "application/json;v=v1;g=config.k8s.io;as=Statusz",
        "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
        "application/json;v=v1beta1;as=Statusz",
    ],
)
async def test_other_formats_are_refused(server: InProcess, accept: str) -> None:
    reply = await server.get("/statusz", accept=accept)
    assert reply.status == 406
    assert ALL in " ".join(reply.body.decode().split())


async def test_the_pages_are_for_monitoring_and_profiles_for_masters() -> None:
    async with running(Settings(controllers=False, scheduler=False)) as cluster:
        plane = cluster.plane
        monitor = InProcess(plane, User("prometheus", ("system:monitoring", "system:authenticated")))
        other = InProcess(plane, User("ada", ("system:authenticated",)))
        assert [(await monitor.get(path)).status for path in ("/statusz", "/flagz")] == [200, 200]
        for path in ("/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/profile?seconds=1"):
            assert (await monitor.get(path)).status == 403
        for path in ("/statusz", "/flagz", "/debug/pprof/"):
            assert (await other.get(path)).status == 403


async def test_without_their_gates_the_pages_are_not_served() -> None:
    settings = Settings(feature_gates="ComponentStatusz=false,ComponentFlagz=false")
    for chosen in (settings, Settings(kubernetes_version="1.35")):
        plane = await build(chosen, MemoryStore())
        assert [(await InProcess(plane).get(path)).status for path in ("/statusz", "/flagz")] == [404, 404]
        await plane.close()


async def test_stacks_name_the_functions_that_tasks_wait_in(server: InProcess) -> None:
    async def inner() -> None:
        await asyncio.get_running_loop().create_future()

    async def outer() -> None:
        await inner()

    tasks = [asyncio.create_task(outer(), name=f"waits-{number}") for number in range(3)]
    await asyncio.sleep(0)
    grouped = (await server.get("/debug/pprof/goroutine?debug=1")).body.decode()
    assert re.search(r"^3 @ 2 frames\n#\t\S+outer\t\S+:\d+\n#\t\S+inner\t", grouped, re.MULTILINE)
    single = (await server.get("/debug/pprof/goroutine?debug=2")).body.decode()
    assert "task waits-2:\n" in single
    for task in tasks:
        task.cancel()


async def test_a_profile_is_what_pprof_reads_and_one_runs_at_a_time(server: InProcess) -> None:
    def work() -> None:
        total = 0
        while not done.is_set():
            total += sum(range(1000))

    done = asyncio.Event()
    working = asyncio.create_task(asyncio.to_thread(work))
    first = asyncio.create_task(server.get("/debug/pprof/profile?seconds=1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = await server.get("/debug/pprof/profile?seconds=1")
    assert (second.status, second.body) == (500, b"Could not enable CPU profiling: cpu profiling already in use\n")
    profile = gzip.decompress((await first).body)
    done.set()
    await working
    assert b"nanoseconds" in profile and b"test_zpages.py" in profile and b"work" in profile


async def test_unknown_and_long_profiles_are_refused(server: InProcess) -> None:
    unknown = await server.get("/debug/pprof/heap")
    assert (unknown.status, unknown.body) == (404, b"Unknown profile\n")
    long = await server.get("/debug/pprof/profile?seconds=31")
    assert (long.status, long.body) == (400, b"profile duration exceeds the limit of 30 seconds\n")
    assert (await server.get("/debug/pprof")).header("location") == ["/debug/pprof/"]
    assert b"<a href='profile?debug=1'>" in (await server.get("/debug/pprof/")).body
    assert (await server.get("/debug")).status == 404
