"""Which users may write which part of a ResourceClaim's status, as in Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import InProcess, control_plane

from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object
from pinnace.model.users import User

GROUP = "resource.k8s.io"
CLAIMS = f"/apis/{GROUP}/v1/namespaces/default/resourceclaims"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = "system:serviceaccount:default:driver"
ON_NODE = {"authentication.kubernetes.io/node-name": ("one",)}


def _result(driver: str, **more: Any) -> Object:
    return {"request": "gpu", "driver": driver, "pool": "p", "device": "x", **more}


ON_ONE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["one"]}]}]}
ALLOCATION = {"devices": {"results": [_result("d.example.com"), _result("e.example.com")]}, "nodeSelector": ON_ONE}
RESERVED = [{"resource": "pods", "name": "web", "uid": "1"}]


def _status_error(driver: str, **more: Any) -> Object:
    return {"driver": driver, "pool": "p", "device": "x", **more}


def _binding(user: str, verb: str = "update") -> str:
    return (
        "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires "
        f'resource="resourceclaims/binding", verb="{verb}" permission: resourceclaims.{GROUP} is forbidden: '
        f'User "{user}" cannot {verb} resource "resourceclaims/binding" in API group "{GROUP}" at the cluster scope'
    )


def _driver(user: str, driver: str, *verbs: str) -> str:
    return (
        'status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", '
        f'verb="[{" ".join(verbs)}]" permission: resourceclaims.{GROUP} "{driver}" is forbidden: User "{user}" cannot '
        f'{verbs[0]} resource "resourceclaims/driver" in API group "{GROUP}" in the namespace "default"'
    )


class Claims:
    """A claim, and those who may write its status, each with more or fewer permissions."""

    def __init__(self, api: InProcess) -> None:
        self._api = api

    async def prepare(self) -> None:
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpus"}}
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
        await self._api.made(CLAIMS, {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaim", **claim})
        for user in ("joe", "binder", "patcher", "here", "driver", ACCOUNT):
            await self.let(user, "resourceclaims/status", "get", "update", "patch")
        await self.let("binder", "resourceclaims/binding", "update", "patch")
        await self.let("patcher", "resourceclaims/binding", "patch")
        await self.let("here", "resourceclaims/binding", "update", namespace="/namespaces/default")
        await self.let("driver", "resourceclaims/driver", "arbitrary-node:update", names=["d.example.com"])
        await self.let(ACCOUNT, "resourceclaims/driver", "associated-node:update", names=["d.example.com"])

    async def let(
        self, user: str, resource: str, *verbs: str, names: list[str] | None = None, namespace: str = ""
    ) -> None:
        kind = "Role" if namespace else "ClusterRole"
        name = f"{user}.{resource}".replace("/", ".").replace(":", ".")
        rule: Object = {"apiGroups": [GROUP], "resources": [resource], "verbs": list(verbs)}
        rules = [rule | ({"resourceNames": names} if names else {})]
        body: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
        await self._api.made(f"{RBAC}{namespace}/{kind.lower()}s", {**body, "kind": kind, "rules": rules})
        whom = {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
        }
        await self._api.made(f"{RBAC}{namespace}/{kind.lower()}bindings", {**body, "kind": f"{kind}Binding", **whom})

    async def write(self, user: str, status: Object, *, verb: str = "update", extra: Any = None) -> list[str]:
        """Return the field errors of a write; none if it succeeds."""
        asking = InProcess(self._api.plane, User(user, ("system:authenticated",), extra=extra or {}))
        if verb == "patch":
            reply = await asking.patch(f"{CLAIMS}/c/status", {"status": status})
        else:
            claim = (await self._api.get(f"{CLAIMS}/c")).json
            reply = await asking.put(f"{CLAIMS}/c/status", {**claim, "status": status})
        if reply.status == 200:
            return []
        assert (reply.status, reply.json["reason"]) == (422, "Invalid")
        return [f"{cause['field']}: {cause['message']}" for cause in reply.json["details"]["causes"]]


@pytest.fixture
async def claims(api: InProcess) -> Claims:
    result = Claims(api)
    await result.prepare()
    return result


async def test_only_who_may_bind_everywhere_says_whose_a_device_is(claims: Claims) -> None:
    bound = {"allocation": ALLOCATION, "reservedFor": RESERVED}
    assert await claims.write("joe", {}) == []
    assert await claims.write("joe", bound) == [_binding("joe")]
    assert await claims.write("here", bound) == [_binding("here")]
    assert await claims.write("patcher", bound) == [_binding("patcher")]
    assert await claims.write("joe", bound, verb="patch") == [_binding("joe", "patch")]
    assert await claims.write("patcher", bound, verb="patch") == []
    assert await claims.write("joe", bound) == []
    assert await claims.write("joe", {"allocation": ALLOCATION}) == [_binding("joe")]
    assert await claims.write("joe", {}) == [_binding("joe")]
    assert await claims.write("binder", {}) == []


async def test_other_errors_come_after_those_of_permissions(claims: Claims) -> None:
    unallocated = "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    assert await claims.write("joe", {"reservedFor": RESERVED}) == [_binding("joe"), unallocated]
    wanted = {"allocation": {"devices": {"results": [_result("d.example.com", adminAccess=True)]}}}
    message = await claims.write("joe", wanted)
    assert [error.partition(":")[0] for error in message] == [
        "status.allocation.devices.results[0].adminAccess",
        "status.allocation",
    ]


async def test_drivers_tell_of_their_own_devices_alone(claims: Claims) -> None:
    assert await claims.write("binder", {"allocation": ALLOCATION}) == []
    status = {"allocation": ALLOCATION, "devices": [_status_error("d.example.com")]}
    both = {"allocation": ALLOCATION, "devices": [_status_error("e.example.com"), _status_error("d.example.com")]}
    anywhere, there = "arbitrary-node:update", "associated-node:update"
    refused = [_driver("joe", name, anywhere) for name in ("d.example.com", "e.example.com")]
    assert await claims.write("joe", both) == refused
    assert await claims.write("driver", both) == [_driver("driver", "e.example.com", anywhere)]
    assert await claims.write(ACCOUNT, status) == [_driver(ACCOUNT, "d.example.com", anywhere)]
    elsewhere = {"authentication.kubernetes.io/node-name": ("two",)}
    assert await claims.write(ACCOUNT, status, extra=elsewhere) == [_driver(ACCOUNT, "d.example.com", anywhere)]
    assert await claims.write("joe", status, extra=ON_NODE) == [_driver("joe", "d.example.com", anywhere)]
    assert await claims.write(ACCOUNT, both, extra=ON_NODE) == [_driver(ACCOUNT, "e.example.com", there, anywhere)]
    assert await claims.write(ACCOUNT, status, extra=ON_NODE) == []
    assert await claims.write("joe", status) == []
    changed = {"allocation": ALLOCATION, "devices": [_status_error("d.example.com", data={"speed": 1})]}
    assert await claims.write("joe", changed) == [_driver("joe", "d.example.com", anywhere)]
    assert await claims.write("joe", {"allocation": ALLOCATION}) == [_driver("joe", "d.example.com", anywhere)]
    assert await claims.write("driver", {"allocation": ALLOCATION}) == []


async def test_before_1_36_who_may_write_a_status_may_write_all_of_it() -> None:
    async with control_plane(settings=Settings(kubernetes_version="1.35")) as api:
        older = Claims(api)
        await older.prepare()
        assert await older.write("joe", {"allocation": ALLOCATION, "devices": [_status_error("d.example.com")]}) == []
