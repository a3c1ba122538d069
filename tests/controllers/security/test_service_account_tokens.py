"""Tokens of service accounts that are kept in secrets, as older clients want them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator

import pytest
from tests.client.connecting import WAYS
from tests.controllers.world import World
from tests.testing.both_ways import TOKENS, reached

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.cluster.control_plane import build
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.memory import MemoryStore
from pinnace.testing.clock import ManualClock

SECRET, ACCOUNT = "v1/Secret", "v1/ServiceAccount"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
TYPE = "kubernetes.io/service-account-token"


@pytest.fixture(params=WAYS)
async def keyed(request: pytest.FixtureRequest, clock: ManualClock, files: CertificateFiles) -> AsyncIterator[World]:
    """A server that knows the key by which its controllers sign."""
    store = MemoryStore()
    plane = await build(Settings(), store, clock=clock, files=files, tokens=TOKENS)
    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
    plane.health.is_ready = True
    async with reached(plane, request.param) as transport_of:
        manager = controllers_of(plane, files, clock=clock, transport_of=transport_of)
        async with manager.running():
            await manager.settle()
            world = World(transport_of, manager)
            await world.client.create(account())
            await world.settle()
            yield world
    await store.close()


def account(name: str = "robot", **fields: object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, **fields}


def holder(name: str = "robot-token", *, of: str = "robot", uid: str = "", **fields: object) -> Object:
    annotations = {NAME: of} | ({UID: uid} if uid else {})
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "type": TYPE, "metadata": metadata, **fields}


async def user_of(world: World, token: str) -> str:
    """Return the user of a token; "" if the server does not accept it."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await world.client.create(review)
    return str(answer["status"]["user"].get("username", ""))


async def filled(world: World, name: str = "robot-token") -> Object:
    await world.settle()
    return await world.client.get(SECRET, name, namespace="default")


def token_in(secret: Object) -> str:
    return b64decode(secret["data"]["token"]).decode()


async def test_a_secret_is_filled_with_a_token_that_works(keyed: World, files: CertificateFiles) -> None:
    made = await keyed.client.create(holder())
    secret = await filled(keyed)
    assert b64decode(secret["data"]["ca.crt"]) == files.ca.certificate.read_bytes()
    assert b64decode(secret["data"]["namespace"]) == b"default"
    robot = await keyed.client.get(ACCOUNT, "robot", namespace="default")
    assert secret["metadata"]["annotations"] == {NAME: "robot", UID: robot["metadata"]["uid"]}
    assert secret["metadata"]["uid"] == made["metadata"]["uid"]
    assert await user_of(keyed, token_in(secret)) == "system:serviceaccount:default:robot"
    await keyed.client.delete(SECRET, "robot-token", namespace="default")
    assert await user_of(keyed, token_in(secret)) == ""


async def test_removed_data_of_a_secret_is_restored_and_the_rest_is_kept(keyed: World) -> None:
    await keyed.client.create(holder(data={"more": "bW9yZQ=="}))
    before = await filled(keyed)
    await keyed.client.patch(SECRET, "robot-token", {"data": {"token": None, "ca.crt": None}}, namespace="default")
    after = await filled(keyed)
    assert (after["data"]["ca.crt"], after["data"]["more"]) == (before["data"]["ca.crt"], "bW9yZQ==")
    assert await user_of(keyed, token_in(after)) == "system:serviceaccount:default:robot"


async def test_a_secret_goes_with_its_account(keyed: World) -> None:
    await keyed.client.create(holder())
    token = token_in(await filled(keyed))
    await keyed.client.create(account("other"))
    await keyed.client.create(holder("other-token", of="other"))
    await keyed.client.delete(ACCOUNT, "robot", namespace="default")
    await keyed.settle()
    assert await keyed.client.get_or_none(SECRET, "robot-token", namespace="default") is None
    assert await keyed.client.get_or_none(SECRET, "other-token", namespace="default") is not None
    assert await user_of(keyed, token) == ""


@pytest.mark.parametrize(("of", "uid"), [("absent", ""), ("robot", "of-a-former-robot")])
async def test_a_secret_of_a_missing_account_is_removed(keyed: World, of: str, uid: str) -> None:
    await keyed.client.create(holder(of=of, uid=uid))
    await keyed.settle()
    assert await keyed.client.get_or_none(SECRET, "robot-token", namespace="default") is None


async def test_an_account_made_anew_does_not_inherit_the_secret(keyed: World) -> None:
    await keyed.client.create(holder())
    token = token_in(await filled(keyed))
    await keyed.client.delete(ACCOUNT, "robot", namespace="default")
    await keyed.client.create(account())
    await keyed.settle()
    assert await keyed.client.get_or_none(SECRET, "robot-token", namespace="default") is None
    assert await user_of(keyed, token) == ""


async def test_an_account_forgets_a_secret_that_is_gone(keyed: World) -> None:
    await keyed.client.create(account("old", secrets=[{"name": "old-token"}, {"name": "kept"}]))
    await keyed.client.create(holder("old-token", of="old"))
    await keyed.settle()
    await keyed.client.delete(SECRET, "old-token", namespace="default")
    await keyed.settle()
    assert (await keyed.client.get(ACCOUNT, "old", namespace="default"))["secrets"] == [{"name": "kept"}]


async def test_a_secret_marked_as_invalid_authenticates_no_user(keyed: World) -> None:
    await keyed.client.create(holder())
    token = token_in(await filled(keyed))
    label = {"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}}
    await keyed.client.patch(SECRET, "robot-token", label, namespace="default")
    assert await user_of(keyed, token) == ""
