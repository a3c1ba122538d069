"""Roles decide about each request, and a refusal has the words of Kubernetes."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.auth.objects_in_memory import rule
from tests.server.in_process import InProcess, Object, config_map, control_plane, pod
from tests.server.roles import (
    AUTHORIZATION,
    BINDINGS,
    BOB,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    ROLES,
    as_user,
    binding,
    cluster_role,
    role,
)

from pinnace.model.users import ANONYMOUS


def certificate_request() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


@pytest.mark.parametrize(
    ("method", "target", "message"),
    [
        (
            "GET",
            "/api/v1/pods",
            'pods is forbidden: User "bob" cannot list resource "pods" in API group "" at the cluster scope',
        ),
        (
            "GET",
            "/apis/apps/v1/namespaces/shop/deployments/web/scale",
            'deployments.apps "web" is forbidden: User "bob" cannot get resource "deployments/scale" in API group '
            '"apps" in the namespace "shop"',
        ),
        (
            "GET",
            "/api/v1/namespaces/shop",
            'namespaces "shop" is forbidden: User "bob" cannot get resource "namespaces" in API group "" in the '
            'namespace "shop"',
        ),
        ("GET", "/metrics", 'forbidden: User "bob" cannot get path "/metrics"'),
    ],
)
async def test_a_refusal_names_user_verb_and_resource(bob: InProcess, method: str, target: str, message: str) -> None:
    reply = await bob.call(method, target)
    assert (reply.status, reply.message) == (403, message)


@pytest.mark.parametrize(
    ("method", "target", "what"),
    [
        ("GET", "/apis/nosuch.io/v1/things", 'cannot list resource "things" in API group "nosuch.io"'),
        ("GET", "/apis/apps/v1/namespaces/d/nosuch/x", 'cannot get resource "nosuch" in API group "apps"'),
        ("POST", "/api/v1/pods", 'cannot create resource "pods" in API group ""'),
    ],
)
async def test_unknown_paths_are_reported_only_to_users_with_access(
    api: InProcess, bob: InProcess, method: str, target: str, what: str
) -> None:
    refused = await bob.call(method, target)
    assert (refused.status, what in refused.message) == (403, True)
    assert (await api.call(method, target)).status in (404, 405)


@pytest.mark.parametrize(
    ("spec", "errs"),
    [
        (
            {},
            "[spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes "
            'must be specified, spec.user: Invalid value: "": at least one of user or group must be specified]',
        ),
        (
            {"user": "bob", "resourceAttributes": {}, "nonResourceAttributes": {"path": "/", "verb": "get"}},
            'spec: Invalid value: {"Path":"/","Verb":"get"}: exactly one of nonResourceAttributes or '
            "resourceAttributes must be specified",
        ),
    ],
)
async def test_a_bad_question_is_refused_as_kubernetes_does(api: InProcess, spec: Object, errs: str) -> None:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    reply = await api.post(f"{AUTHORIZATION}/subjectaccessreviews", body)
    assert (reply.status, reply.message) == (422, f'.authorization.k8s.io "" is invalid: {errs}')


@pytest.mark.parametrize(
    ("path", "anonymous", "known"),
    [
        ("/healthz", 200, 200),
        ("/livez", 200, 200),
        ("/readyz", 200, 200),
        ("/version", 200, 200),
        ("/api", 403, 200),
        ("/apis/apps/v1", 403, 200),
        ("/openapi/v3", 403, 200),
        ("/metrics", 403, 403),
        ("/", 403, 403),
        ("/api/v1/namespaces", 403, 403),
        ("/openid/v1/jwks", 403, 403),
    ],
)
async def test_strangers_see_health_and_those_who_are_known_discovery(
    api: InProcess, path: str, anonymous: int, known: int
) -> None:
    assert (await as_user(api, ANONYMOUS).get(path)).status == anonymous
    assert (await as_user(api, BOB).get(path)).status == known


async def test_a_binding_is_followed_at_once_and_so_is_its_end(api: InProcess, bob: InProcess) -> None:
    seen = [(await bob.get(CONFIG_MAPS)).status]
    await api.made(BINDINGS, binding("viewers", "view"))
    seen.append((await bob.get(CONFIG_MAPS)).status)
    await api.delete(f"{BINDINGS}/viewers")
    seen.append((await bob.get(CONFIG_MAPS)).status)
    assert seen == [403, 200, 403]


async def test_a_namespace_can_be_read_by_a_role_bound_in_it(api: InProcess, bob: InProcess) -> None:
    await api.made(BINDINGS, binding("viewers", "view"))
    assert (await bob.get("/api/v1/namespaces/default")).status == 200
    assert (await bob.get("/api/v1/namespaces/kube-system")).status == 403
    assert (await bob.get("/api/v1/namespaces")).status == 403


async def test_a_list_of_one_name_is_about_that_name(api: InProcess, bob: InProcess) -> None:
    await api.made(ROLES, role("one", rule("list watch", "configmaps", names="mine")))
    await api.made(BINDINGS, binding("one", "one", kind="Role"))
    assert (await bob.get(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dmine")).status == 200
    assert (await bob.get(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dyours")).status == 403
    assert (await bob.get(CONFIG_MAPS)).status == 403


async def test_a_gathering_role_gathers_while_the_server_runs(api: InProcess, bob: InProcess) -> None:
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    widgets = rule("get list", "widgets", groups="example.com")
    await api.made(BINDINGS, binding("viewers", "view"))
    question = {
        "resourceAttributes": {"verb": "list", "group": "example.com", "resource": "widgets", "namespace": "default"}
    }

    async def may() -> bool:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": question}
        answer = await bob.made(f"{AUTHORIZATION}/selfsubjectaccessreviews", body)
        return bool(answer["status"]["allowed"])

    assert not await may()
    await api.made(CLUSTER_ROLES, cluster_role("widgets", widgets, metadata={"name": "widgets", "labels": label}))
    async with asyncio.timeout(60):
        while not await may():
            await asyncio.sleep(0)
    for name in ("view", "edit", "admin"):
        async with asyncio.timeout(60):
            while widgets not in (await api.get(f"{CLUSTER_ROLES}/{name}")).json["rules"]:
                await asyncio.sleep(0)
    await api.delete(f"{CLUSTER_ROLES}/widgets")
    async with asyncio.timeout(60):
        while await may():
            await asyncio.sleep(0)


async def test_a_certificate_request_says_who_really_asks(api: InProcess, bob: InProcess) -> None:
    csr_role = cluster_role("asker", rule("create", "certificatesigningrequests", groups="certificates.k8s.io"))
    await api.made(CLUSTER_ROLES, csr_role)
    await api.made(CLUSTER_BINDINGS, binding("askers", "asker", of="ClusterRoleBinding"))
    spec = {
        "request": certificate_request(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
        "username": "system:admin",
        "groups": ["system:masters"],
    }
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "bob"},
        "spec": spec,
    }
    made = await bob.made("/apis/certificates.k8s.io/v1/certificatesigningrequests", body)
    assert (made["spec"]["username"], made["spec"]["groups"]) == ("bob", ["devs", "system:authenticated"])


async def test_a_restart_keeps_roles_and_adds_what_is_missing() -> None:
    async with control_plane() as first:
        await first.delete(f"{CLUSTER_ROLES}/view")
        assert (await first.get(f"{CLUSTER_ROLES}/view")).status == 404
        async with control_plane(first.plane.store) as second:
            assert (await second.get(f"{CLUSTER_ROLES}/view")).status == 200


async def test_pods_and_maps_need_no_more_than_a_role(api: InProcess, bob: InProcess) -> None:
    await api.made(BINDINGS, binding("editors", "edit"))
    await bob.made(CONFIG_MAPS, config_map())
    await bob.made("/api/v1/namespaces/default/pods", pod())
    assert (await bob.post(ROLES, role("r", rule("get", "pods")))).status == 403


@pytest.mark.parametrize(
    ("method", "resource", "target", "body", "content_type"),
    [
        pytest.param(
            "PATCH",
            "configmaps",
            f"{CONFIG_MAPS}/new?fieldManager=bob",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}},
            "application/apply-patch+yaml",
            id="apply",
        ),
        pytest.param(
            "PUT",
            "leases",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/new",
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "new"}},
            "application/json",
            id="update of a lease",
        ),
        pytest.param(
            "PUT",
            "endpoints",
            "/api/v1/namespaces/default/endpoints/new",
            {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "new"}},
            "application/json",
            id="update of endpoints",
        ),
    ],
)
async def test_a_write_that_would_create_needs_the_verb_create(
    api: InProcess, method: str, resource: str, target: str, body: Object, content_type: str
) -> None:
    group = "coordination.k8s.io" if resource == "leases" else "core"
    await api.post(ROLES, role("editor", rule("get patch update", resource, groups=group)))
    await api.post(BINDINGS, binding("editors", "editor", kind="Role"))
    bob = as_user(api, BOB)
    refused = await bob.call(method, target, body, content_type)
    assert refused.status == 403
    assert f'User "bob" cannot create resource "{resource}"' in refused.json["message"]
    assert (await api.get(target.partition("?")[0])).status == 404
    await api.post(ROLES, role("creator", rule("create", resource, groups=group)))
    await api.post(BINDINGS, binding("creators", "creator", kind="Role"))
    assert (await bob.call(method, target, body, content_type)).status == 201
