"""The callers of an operator's API: identified by the cluster, by a certificate or a token, or forged."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.sdk.recipes import KIND, ROOT, kitchen, recipe

from pinnace.auth.certificates.authority import KeyPair, issue, load_pair, new_ca
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.testing.cluster import Cluster
from pinnace.testing.wire import certificates

TRUST = ("v1/ConfigMap", "extension-apiserver-authentication")
FORGED = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
RECIPES = f"{ROOT}/namespaces/default/recipes"


@dataclass(frozen=True)
class Direct:
    """Calls the API without the cluster's server in between."""

    cluster: Cluster
    port: int
    directory: Path

    async def get(
        self, path: str = RECIPES, *, pair: KeyPair | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if pair is not None:
            certificate, key = self.directory / "tls.crt", self.directory / "tls.key"
            certificate.write_bytes(pair.certificate_pem)
            key.write_bytes(pair.key_pem)
            tls.load_cert_chain(certificate, key)
        url = f"https://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, ssl=tls, headers=headers) as got,
        ):
            return got.status, await got.json(content_type=None)


@pytest.fixture
async def direct(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Direct]:
    await cluster.run(kitchen())
    obj = await cluster.client.get("apiregistration.k8s.io/v1/APIService", "v1.kitchen.example.com")
    yield Direct(cluster, obj["spec"]["service"]["port"], tmp_path)


def proxy(name: str = "front-proxy-client") -> KeyPair:
    return issue(load_pair(certificates().front_proxy_ca), common_name=name, client=True)


async def test_a_user_in_headers_of_an_unknown_proxy_is_anonymous(direct: Direct) -> None:
    status, message = await direct.get(headers=FORGED)
    assert status == 403
    assert message["message"].startswith(
        'recipes.kitchen.example.com is forbidden: User "system:anonymous" cannot list'
    )


@pytest.mark.parametrize(
    ("pair", "status"),
    [
        pytest.param(lambda: proxy(), 200, id="the cluster's server"),
        pytest.param(lambda: proxy("another-proxy"), 403, id="another name of the same authority"),
        pytest.param(
            lambda: issue(load_pair(certificates().ca), common_name="front-proxy-client", client=True),
            403,
            id="a client who calls itself a proxy",
        ),
    ],
)
async def test_only_the_proxy_speaks_for_others(direct: Direct, pair: Any, status: int) -> None:
    assert (await direct.get(pair=pair(), headers=FORGED))[0] == status


async def test_a_certificate_of_a_stranger_is_not_taken(direct: Direct) -> None:
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await direct.get(
            pair=issue(new_ca(name="stranger"), common_name="front-proxy-client", client=True), headers=FORGED
        )


async def test_a_client_is_known_by_its_own_certificate(direct: Direct) -> None:
    authority = load_pair(certificates().ca)
    admin = issue(authority, common_name="ann", organizations=("system:masters",), client=True)
    assert (await direct.get(pair=admin))[0] == 200
    status, message = await direct.get(pair=issue(authority, common_name="ann", client=True))
    assert (status, 'User "ann"' in message["message"]) == (403, True)


async def test_a_token_is_shown_to_the_cluster(direct: Direct) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "cook"}}
    await direct.cluster.client.create(account)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await direct.cluster.client.create_below("v1/ServiceAccount", "cook", "token", request)
    status, message = await direct.get(headers={"Authorization": f"Bearer {answer['status']['token']}"})
    assert (status, 'User "system:serviceaccount:default:cook"' in message["message"]) == (403, True)
    assert (await direct.get(headers={"Authorization": "Bearer nonsense"}))[0] == 401


async def test_roles_of_the_cluster_decide_and_count_within_seconds(direct: Direct) -> None:
    cluster = direct.cluster
    ann = cluster.client_as("ann")
    role: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "cook"}}
    role["rules"] = [{"apiGroups": ["kitchen.example.com"], "resources": ["recipes"], "verbs": ["create"]}]
    binding: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
    binding |= {
        "metadata": {"name": "cook"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "cook"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
    }
    await cluster.client.create(role)
    await cluster.client.create(binding)
    await ann.create(recipe())
    with pytest.raises(errors.Forbidden):
        await ann.get(KIND, "soup")
    headers = {"X-Remote-User": "ann"}
    status, message = await direct.get(f"{RECIPES}/soup", pair=proxy(), headers=headers)
    assert (status, message["details"]["name"]) == (403, "soup")
    role["rules"][0]["verbs"] = ["get"]
    await cluster.client.apply(role, force=True)
    await cluster.clock.advance(10)
    assert (await direct.get(f"{RECIPES}/soup", pair=proxy(), headers=headers))[0] == 200


async def test_health_is_reported_to_everybody_and_pages_to_those_who_may(direct: Direct) -> None:
    assert (await direct.get("/openapi/v2"))[0] == 403
    assert (await direct.get("/openapi/v2", pair=proxy(), headers={"X-Remote-User": "ann"}))[0] == 200
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession() as session:
        for page in ("healthz", "livez", "readyz"):
            async with session.get(f"https://127.0.0.1:{direct.port}/{page}", ssl=tls) as answer:
                assert (answer.status, await answer.text()) == (200, "ok")


async def test_a_new_authority_is_believed_as_soon_as_the_cluster_says_so(direct: Direct) -> None:
    client = direct.cluster.client
    new = new_ca(name="new-proxies")
    present = await client.get(*TRUST, namespace="kube-system")
    # Nonsense first: the trusted proxies stay trusted.
    broken = {"data": {"requestheader-allowed-names": "[", "requestheader-client-ca-file": "nonsense"}}
    await client.patch(*TRUST, broken, namespace="kube-system")
    assert (await direct.get(pair=proxy(), headers=FORGED))[0] == 200
    await client.patch(
        *TRUST,
        {
            "data": {
                "requestheader-allowed-names": present["data"]["requestheader-allowed-names"],
                "requestheader-client-ca-file": new.certificate_pem.decode(),
            }
        },
        namespace="kube-system",
    )
    renewed = issue(new, common_name="front-proxy-client", client=True)

    async def status() -> int:
        try:
            return (await direct.get(pair=renewed, headers=FORGED))[0]
        except (aiohttp.ClientError, ssl.SSLError):
            return 0

    while await status() != 200:  # It comes by a watch.
        pass
    assert (await direct.get(pair=proxy(), headers=FORGED))[0] == 403


async def test_a_body_that_is_too_large_or_no_json_is_refused(direct: Direct) -> None:
    client = direct.cluster.client
    with pytest.raises(errors.TooLarge):
        await client.create(recipe(steps=["x" * 4_000_000]))
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    admin = issue(load_pair(certificates().ca), common_name="ann", organizations=("system:masters",), client=True)
    certificate, key = direct.directory / "tls.crt", direct.directory / "tls.key"
    certificate.write_bytes(admin.certificate_pem)
    key.write_bytes(admin.key_pem)
    tls.load_cert_chain(certificate, key)
    url = f"https://127.0.0.1:{direct.port}{RECIPES}"
    async with aiohttp.ClientSession() as session:
        for body in (b"{", b"[]", b'"x"', b'{"metadata": 5}', b'{"apiVersion": "v1", "kind": "Pod"}', b"\xff"):
            async with session.post(url, ssl=tls, data=body, headers={"Content-Type": "application/json"}) as answer:
                assert (answer.status, (await answer.json())["reason"]) == (400, "BadRequest")
