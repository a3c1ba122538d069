"""Forged, changed and expired tokens are rejected, without details."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.server.in_process import InProcess
from tests.server.roles import from_the_wire

from pinnace.auth.authentication import jwt
from pinnace.auth.certificates.authority import CertificateFiles, ensure_certificates, load_key
from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import Settings
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.memory import MemoryStore
from pinnace.testing.clock import ManualClock

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
ADMINS = {
    "metadata": {"name": "robots"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
}
NOW = datetime(2026, 6, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Door:
    """A server, a token that opens it, and the key that signed that."""

    api: InProcess
    clock: ManualClock
    token: str
    key: ec.EllipticCurvePrivateKey

    @property
    def claims(self) -> dict[str, Any]:
        read = jwt.read(self.token)
        assert read is not None
        return dict(read.claims)

    async def status(self, token: str) -> int:
        return (await from_the_wire(self.api, "/api/v1/secrets", authorization=f"Bearer {token}")).status


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture
async def door(files: CertificateFiles) -> AsyncIterator[Door]:
    store, clock = MemoryStore(), ManualClock(NOW)
    plane = await build(Settings(), store, clock=clock, files=files)
    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
    api = InProcess(plane)
    await api.made(ACCOUNTS, {"metadata": {"name": "robot"}})
    await api.made("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ADMINS)
    made = await api.made(f"{ACCOUNTS}/robot/token", {"spec": {"expirationSeconds": 3600}})
    yield Door(api, clock, made["status"]["token"], load_key(files.token_key))
    await store.close()


def encoded(part: Any) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed_with_nothing(door: Door, algorithm: str) -> str:
    return f"{encoded({'alg': algorithm, 'typ': 'JWT'})}.{encoded(door.claims)}."


def signed_with_the_public_key(door: Door) -> str:
    """The trick of those who hope that the server takes its own public key for a shared secret."""
    head = f"{encoded({'alg': 'HS256'})}.{encoded(door.claims)}"
    public = json.dumps(jwt.to_jwk(door.key.public_key())).encode()
    return f"{head}.{encoded(hmac.digest(public, head.encode(), hashlib.sha256))}"


def with_the_body_of(door: Door, **changes: Any) -> str:
    head, _, signature = door.token.split(".")
    return f"{head}.{encoded(door.claims | changes)}.{signature}"


def resigned(door: Door, **changes: Any) -> str:
    """Signed by the true key, as if the server had made it: only what it says can be wrong."""
    return jwt.sign(door.claims | changes, door.key)


AT = int(NOW.timestamp())
FORGED: dict[str, Callable[[Door], str]] = {
    "alg none": lambda door: signed_with_nothing(door, "none"),
    "alg None": lambda door: signed_with_nothing(door, "None"),
    "no signature": lambda door: door.token.rpartition(".")[0] + ".",
    "two parts": lambda door: door.token.rpartition(".")[0],
    "half a signature": lambda door: door.token[:-20],
    "public key as a secret": signed_with_the_public_key,
    "another key": lambda door: jwt.sign(door.claims, ec.generate_private_key(ec.SECP256R1())),
    "longer life": lambda door: with_the_body_of(door, exp=AT + 10**9),
    "another account": lambda door: with_the_body_of(door, sub="system:serviceaccount:kube-system:root"),
    "expired": lambda door: resigned(door, exp=AT - 61),
    "without an end": lambda door: jwt.sign({k: v for k, v in door.claims.items() if k != "exp"}, door.key),
    "end is a text": lambda door: resigned(door, exp="9999999999"),
    "not yet valid": lambda door: resigned(door, nbf=AT + 61),
    "for others": lambda door: resigned(door, aud=["vault"]),
    "for no audience": lambda door: resigned(door, aud=[]),
    "of another issuer": lambda door: resigned(door, iss="https://elsewhere.example"),
    "of a former account": lambda door: resigned(
        door, **{"kubernetes.io": door.claims["kubernetes.io"] | {"serviceaccount": {"name": "robot", "uid": "old"}}}
    ),
    "subject is another": lambda door: resigned(door, sub="system:serviceaccount:default:other"),
}


@pytest.mark.parametrize("name", FORGED)
async def test_it_does_not_open_the_door(door: Door, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    forged = FORGED[name](door)
    reply = await from_the_wire(door.api, "/api/v1/secrets", authorization=f"Bearer {forged}")
    assert (reply.status, reply.message) == (401, "Unauthorized")
    assert forged not in caplog.text and forged not in reply.body.decode()
    question = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": forged}}
    reviewed = (await door.api.post("/apis/authentication.k8s.io/v1/tokenreviews", question)).json["status"]
    assert reviewed.get("authenticated") is not True and reviewed["user"] == {}
    assert forged not in reviewed["error"]


async def test_the_true_one_does_until_its_time_is_over(door: Door) -> None:
    assert await door.status(door.token) == 200
    assert await door.status(resigned(door)) == 200
    await door.clock.advance(3600 + 59)
    assert await door.status(door.token) == 200  # Clocks differ by a minute.
    await door.clock.advance(2)
    assert await door.status(door.token) == 401


async def test_a_good_token_behind_a_bad_one_does_not_count(door: Door) -> None:
    assert await door.status(f"guess, Bearer {door.token}") == 401
    assert await door.status(f"{door.token} {door.token}") == 401
