"""The server of the controllers and of the scheduler as processes of their own: who may read which page."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from tests.free_ports import free_port
from tests.server.in_process import control_plane

from pinnace.client import kubeconfig as client_kubeconfig
from pinnace.client.kubeconfig_files import kubeconfig_of
from pinnace.cluster.component_server import Component, ComponentServer
from pinnace.cluster.controllers import controllers_at, manager_configuration
from pinnace.cluster.scheduler import pod_resources_of, scheduler_at
from pinnace.kinds.feature_gates.gates import InvalidFeatureGates
from pinnace.model.objects import Object
from pinnace.model.users import MASTERS, User
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.configuration import configuration_document, default_configuration
from pinnace.testing.wire import wired

ADMIN, MONITOR, GUEST = "admin-token", "monitor-token", "guest-token"
USERS = {
    ADMIN: User("admin", (MASTERS,)),
    MONITOR: User("prometheus", ("system:monitoring",)),
    GUEST: User("guest", ()),
}
FLAGS = {"secure-port": "10257", "leader-elect": "false"}
AS_FLAGZ = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"


class Pages:
    """A client of the server of one component."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self._base = f"https://127.0.0.1:{port}"

    async def get(self, path: str, token: str = "", accept: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._http.get(self._base + path, headers=headers | {"Accept": accept}, ssl=_TRUSTING) as reply:
            return reply.status, await reply.text()

    async def post(self, path: str, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._http.post(self._base + path, headers=headers, ssl=_TRUSTING) as reply:
            return reply.status


_TRUSTING = ssl.create_default_context()
_TRUSTING.check_hostname = False
_TRUSTING.verify_mode = ssl.CERT_NONE


@asynccontextmanager
async def serving(which: str, *, feature_gates: str = "") -> AsyncIterator[Pages]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(control_plane(tokens=USERS))
        wire = await stack.enter_async_context(wired(api.plane, ADMIN))
        access = client_kubeconfig.access_of(kubeconfig_of(wire.access))
        port = free_port()
        manager: Manager
        configuration: dict[str, Object]
        if which == "kube-scheduler":
            scheduling = default_configuration()
            manager = await stack.enter_async_context(scheduler_at(access, scheduling, leads=False))
            configuration = {"componentconfig": configuration_document(scheduling)}
            pages = {"/metrics/resources": pod_resources_of(manager)}
        else:
            only = ["job-controller"]
            manager = await stack.enter_async_context(controllers_at(access, only=only, leads=False))
            configuration = manager_configuration(only, address="127.0.0.1", port=port, leads=False)
            pages = {}
        component = Component(name=which, configuration=configuration, flags=FLAGS)
        server = ComponentServer(component, feature_gates, "127.0.0.1", port)
        await stack.enter_async_context(server.listening(manager, pages))
        await stack.enter_async_context(manager.running())
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield Pages(http, port)


async def test_the_pages_of_the_controllers_are_for_those_who_may_read_them() -> None:
    async with serving("kube-controller-manager") as pages:
        assert await pages.get("/healthz") == (200, "ok")
        for path in ("/statusz", "/flagz", "/metrics", "/configz", "/debug/pprof/"):
            status, text = await pages.get(path)
            assert status == 403
            assert f'User \\"system:anonymous\\" cannot get path \\"{path}\\"' in text
            assert (await pages.get(path, GUEST))[0] == 403
            assert (await pages.get(path, "another-token"))[0] == 401
            assert (await pages.get(path, ADMIN))[0] == 200
        for path, status in (("/statusz", 200), ("/flagz", 200), ("/metrics", 200), ("/configz", 403)):
            assert (await pages.get(path, MONITOR))[0] == status
        assert (await pages.get("/debug/pprof/", MONITOR))[0] == 403
        assert await pages.post("/metrics", ADMIN) == 405
        assert (await pages.get("/nothing", ADMIN))[0] == 404
        text = (await pages.get("/flagz", MONITOR))[1]
        assert text.startswith("\nkube-controller-manager flagz\nWarning: ")
        assert text.endswith("leader-elect=false\nsecure-port=10257\n")
        assert "/configz" in (await pages.get("/statusz", MONITOR))[1]
        configuration = (await pages.get("/configz", ADMIN))[1]
        assert '"kind":"KubeControllerManagerConfiguration"' in configuration
        assert '"Controllers":["job-controller"]' in configuration
        assert (await pages.get("/debug/pprof/goroutine?debug=2", ADMIN))[0] == 200


async def test_the_scheduler_shows_its_configuration() -> None:
    async with serving("kube-scheduler") as pages:
        configuration = (await pages.get("/configz", ADMIN))[1]
        assert '"kind":"KubeSchedulerConfiguration"' in configuration
        assert '"schedulerName":"default-scheduler"' in configuration
        assert (await pages.get("/flagz", ADMIN, AS_FLAGZ))[1].count('"secure-port": "10257"') == 1
        assert (await pages.get("/flagz", ADMIN, "text/html"))[0] == 406
        assert (await pages.get("/metrics/resources", ADMIN))[0] == 200


@pytest.mark.parametrize(("gates", "statuses"), [("ComponentFlagz=false", (200, 404)), ("Unknown=true", None)])
async def test_gates_switch_pages_off(gates: str, statuses: tuple[int, int] | None) -> None:
    if statuses is None:
        with pytest.raises(InvalidFeatureGates, match="unrecognized feature gate: Unknown"):
            async with serving("kube-controller-manager", feature_gates=gates):
                pass
        return
    async with serving("kube-controller-manager", feature_gates=gates) as pages:
        assert ((await pages.get("/statusz", ADMIN))[0], (await pages.get("/flagz", ADMIN))[0]) == statuses
