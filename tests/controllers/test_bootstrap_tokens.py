"""Tokens of joining machines expire, and sign the cluster's kubeconfig while they are valid."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from datetime import timedelta

import orjson
from tests.controllers.world import World

from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339
from pinnace.testing.clock import ManualClock

KUBECONFIG = "apiVersion: v1\nkind: Config\n"
INFO = {"metadata": {"name": "cluster-info", "namespace": "kube-public"}, "data": {"kubeconfig": KUBECONFIG}}


def token(name: str, **data: str) -> Object:
    values = {"token-id": name, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true", **data}
    metadata = {"name": f"bootstrap-token-{name}", "namespace": "kube-system"}
    kind = {"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token"}
    return {**kind, "metadata": metadata, "stringData": values}


async def signatures(world: World) -> dict[str, str]:
    await world.settle()
    obj = await world.client.get("v1/ConfigMap", "cluster-info", namespace="kube-public")
    return {name: value for name, value in obj["data"].items() if name != "kubeconfig"}


async def test_a_token_goes_when_it_expires(world: World, clock: ManualClock) -> None:
    expires = to_rfc3339(clock.now() + timedelta(minutes=5))
    await world.client.create(token("abcdef", expiration=expires))
    await world.client.create(token("unlimi"))
    await world.settle()
    await clock.advance(310)
    await world.settle()
    left = await world.client.list("v1/Secret", namespace="kube-system", fields="type=bootstrap.kubernetes.io/token")
    assert [obj["metadata"]["name"] for obj in left] == ["bootstrap-token-unlimi"]


async def test_valid_tokens_sign_the_cluster_info(world: World, clock: ManualClock) -> None:
    await world.client.create({"apiVersion": "v1", "kind": "ConfigMap", **INFO})
    made = await world.client.create(token("abcdef", expiration=to_rfc3339(clock.now() + timedelta(minutes=5))))
    await world.client.create(token("silent", **{"usage-bootstrap-signing": "false"}))
    result = await signatures(world)
    assert set(result) == {"jws-kubeconfig-abcdef"}
    header, content, signature = result["jws-kubeconfig-abcdef"].split(".")
    assert content == ""
    assert orjson.loads(urlsafe_b64decode(header + "==")) == {"alg": "HS256", "kid": "abcdef"}
    signed = f"{header}.{urlsafe_b64encode(KUBECONFIG.encode()).rstrip(b'=').decode()}"
    secret = b64decode(made["data"]["token-secret"])
    assert urlsafe_b64decode(signature + "=") == hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    await clock.advance(310)
    assert await signatures(world) == {}
