"""The built-in controllers as parts of the server: one that fails is restarted, and the others go on."""

from __future__ import annotations

import pytest
from tests.server.in_process import control_plane

from pinnace.client.following import Followed
from pinnace.cluster.controllers import controllers_of
from pinnace.model.objects import Key
from pinnace.reconcile.informer import Informer
from pinnace.testing.clock import ManualClock

NAMESPACES = "/api/v1/namespaces"
INFORMER = "informer/v1/ServiceAccount"


async def test_an_informer_that_fails_is_restarted_and_the_other_controllers_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, is_odd = ManualClock(), True
    hear = Informer._receive

    async def hear_oddly(self: Informer, event: Followed) -> None:
        if is_odd and self.scope.kind.name == "ServiceAccount":
            raise KeyError("metadata")
        await hear(self, event)

    async with control_plane(clock=clock) as api:
        manager = controllers_of(api.plane, None, clock=clock, only=("serviceaccount-controller",))
        async with manager.running():
            await manager.settle()
            monkeypatch.setattr(Informer, "_receive", hear_oddly)
            await api.made(NAMESPACES, {"metadata": {"name": "one"}})
            await clock.advance(0)
            assert api.plane.supervisor.failures[INFORMER] == 1
            failed = (await api.get("/readyz")).body.decode()
            assert f"[-]{INFORMER} failed: reason withheld" in failed
            await api.made(NAMESPACES, {"metadata": {"name": "two"}})
            await clock.advance(0)
            assert (await api.get(f"{NAMESPACES}/two/serviceaccounts/default")).status == 200
            is_odd = False
            await clock.advance(1)
            await manager.settle()
            assert Key("two", "default") in manager.cache("v1/ServiceAccount", metadata_only=True)
            await clock.advance(20)
            assert (await api.get("/readyz")).body == b"ok"
