"""Authorization through the whole server: denials, reviews, impersonation, grants and escalation."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.auth.objects_in_memory import rule
from tests.server.in_process import InProcess, Object, Reply, config_map, control_plane, pod, reply_of

from pinnace.auth.users import ANONYMOUS, User, authenticated
from pinnace.cluster.settings import Settings
from pinnace.server.http.header_cache import RequestHead
from pinnace.server.http.messages import Peer, Request, Response, split_target
from pinnace.server.local import NoTransport

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
BOB = authenticated(User("bob", ("devs",)))


def certificate_request() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


def role(name: str, *rules: Object) -> Object:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}


def cluster_role(name: str, *rules: Object, **more: Any) -> Object:
    return {**role(name, *rules), "kind": "ClusterRole", **more}


def binding(
    name: str, to_role: str, user: str = "bob", *, kind: str = "ClusterRole", of: str = "RoleBinding"
) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": of,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": to_role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def as_user(api: InProcess, user: User) -> InProcess:
    return InProcess(api.plane, user)


@pytest.fixture
async def bob(api: InProcess) -> AsyncIterator[InProcess]:
    yield as_user(api, BOB)


async def from_the_wire(api: InProcess, target: str, *, is_upgrade: bool = False, **headers: str) -> Reply:
    """Send a request as from a socket: its user is not authenticated yet."""
    path, query = split_target(target)
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    answer = api.plane.api(
        Request("GET", target, path, query, RequestHead(named), b"", Peer(NoTransport()), upgrade=is_upgrade)
    )
    done = await answer if isinstance(answer, Awaitable) else answer
    assert isinstance(done, Response)
    return reply_of(done)


# Refusals.


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
async def test_what_is_served_is_reported_only_to_those_who_may_ask(
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
            "[spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes "
            'must be specified, spec.user: Invalid value: "": at least one of user or group must be specified]',
        ),
        (
            {"user": "bob", "resourceAttributes": {}, "nonResourceAttributes": {"path": "/", "verb": "get"}},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":"get"}: cannot be specified in combination '
            "with resourceAttributes",
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
    async with asyncio.timeout(5):
        while not await may():
            await asyncio.sleep(0)
    for name in ("view", "edit", "admin"):
        async with asyncio.timeout(5):
            while widgets not in (await api.get(f"{CLUSTER_ROLES}/{name}")).json["rules"]:
                await asyncio.sleep(0)
    await api.delete(f"{CLUSTER_ROLES}/widgets")
    async with asyncio.timeout(5):
        while await may():
            await asyncio.sleep(0)


# Reviews.


async def review(api: InProcess, plural: str, kind: str, spec: Object, group: str = AUTHORIZATION) -> Object:
    body = {"apiVersion": group.removeprefix("/apis/"), "kind": kind, "spec": spec}
    status: Object = (await api.made(f"{group}/{plural}", body))["status"]
    return status


async def test_an_access_review_says_by_which_binding(api: InProcess) -> None:
    about = {"verb": "create", "group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews"}
    spec = {"user": "bob", "groups": ["system:authenticated"], "resourceAttributes": about}
    assert await review(api, "subjectaccessreviews", "SubjectAccessReview", spec) == {
        "allowed": True,
        "reason": 'RBAC: allowed by ClusterRoleBinding "system:basic-user" of ClusterRole "system:basic-user" to '
        'Group "system:authenticated"',
    }
    spec = {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    assert await review(api, "subjectaccessreviews", "SubjectAccessReview", spec) == {"allowed": False}


async def test_a_local_access_review_is_about_its_namespace(api: InProcess) -> None:
    await api.made(BINDINGS, binding("viewers", "view"))
    spec = {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}
    plural = "namespaces/default/localsubjectaccessreviews"
    assert (await review(api, plural, "LocalSubjectAccessReview", spec))["allowed"] is True
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "spec": spec}
    elsewhere = await api.post(f"{AUTHORIZATION}/namespaces/kube-system/localsubjectaccessreviews", body)
    assert elsewhere.status == 422


async def test_a_rules_review_lists_what_holds_in_a_namespace(api: InProcess, bob: InProcess) -> None:
    await api.made(ROLES, role("reader", rule("get", "pods")))
    await api.made(BINDINGS, binding("readers", "reader", kind="Role"))
    kind = ("selfsubjectrulesreviews", "SelfSubjectRulesReview")
    here = await review(bob, *kind, {"namespace": "default"})
    there = await review(bob, *kind, {"namespace": "kube-system"})
    assert rule("get", "pods") in here["resourceRules"]
    assert rule("get", "pods") not in there["resourceRules"]
    assert {one["nonResourceURLs"][0] for one in here["nonResourceRules"]} == {"/api", "/healthz"}
    assert here["incomplete"] is False
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {}}
    refused = await bob.post(f"{AUTHORIZATION}/selfsubjectrulesreviews", body)
    assert (refused.status, refused.message) == (400, "no namespace on request")


async def test_a_node_s_rules_are_not_all_that_it_may(api: InProcess) -> None:
    node = as_user(api, User("system:node:n1", ("system:nodes", "system:authenticated")))
    status = await review(node, "selfsubjectrulesreviews", "SelfSubjectRulesReview", {"namespace": "default"})
    assert status["incomplete"] is True
    assert status["evaluationError"] == "node authorizer does not support user rule resolution"


# Granting.


async def lets_bob_write_roles(api: InProcess, *more: Object) -> None:
    writes = rule("create update get", "roles rolebindings", groups="rbac.authorization.k8s.io")
    cluster_writes = rule("create", "clusterroles clusterrolebindings", groups="rbac.authorization.k8s.io")
    await api.made(CLUSTER_ROLES, cluster_role("role-writer", writes, cluster_writes, *more))
    await api.made(CLUSTER_BINDINGS, binding("role-writer", "role-writer", of="ClusterRoleBinding"))


NOT_HELD = (
    '"r" is forbidden: user "bob" (groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions '
    'not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
)


async def test_nobody_grants_what_he_does_not_hold(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api)
    secrets = rule("get", "secrets")
    made = await bob.post(ROLES, role("r", secrets))
    assert (made.status, made.message) == (403, f"roles.rbac.authorization.k8s.io {NOT_HELD}")
    await api.made(ROLES, role("r", rule("get", "pods")))
    changed = await bob.put(f"{ROLES}/r", role("r", secrets))
    assert (changed.status, changed.message) == (403, f"roles.rbac.authorization.k8s.io {NOT_HELD}")
    await api.made(CLUSTER_ROLES, cluster_role("secret-reader", secrets))
    bound = await bob.post(BINDINGS, binding("r", "secret-reader"))
    assert (bound.status, bound.message) == (403, f"rolebindings.rbac.authorization.k8s.io {NOT_HELD}")
    admin = await bob.post(CLUSTER_BINDINGS, binding("me", "cluster-admin", of="ClusterRoleBinding"))
    assert admin.status == 403
    assert (await bob.get("/api/v1/namespaces/default/secrets/x")).status == 403


async def test_what_is_held_can_be_granted(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api, rule("get list", "configmaps"))
    await bob.made(ROLES, role("r", rule("get", "configmaps")))
    await bob.made(BINDINGS, binding("r", "r", user="alice", kind="Role"))
    assert (await as_user(api, User("alice")).get(f"{CONFIG_MAPS}/x")).status == 404


@pytest.mark.parametrize(("verb", "resource"), [("escalate", "roles"), ("bind", "clusterroles")])
async def test_who_may_escalate_or_bind_may_grant_more(
    api: InProcess, bob: InProcess, verb: str, resource: str
) -> None:
    await lets_bob_write_roles(api, rule(verb, resource, groups="rbac.authorization.k8s.io"))
    made = await bob.post(ROLES, role("r", rule("get", "secrets")))
    bound = await bob.post(BINDINGS, binding("b", "edit"))
    assert (made.status, bound.status) == ((201, 403) if verb == "escalate" else (403, 201))


async def test_a_gathering_role_takes_an_administrator(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api)
    gathers = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    reply = await bob.post(CLUSTER_ROLES, {**cluster_role("r"), "aggregationRule": gathers})
    assert reply.status == 403
    assert reply.message.endswith("must have cluster-admin privileges to use the aggregationRule")


async def test_a_role_that_is_not_there_cannot_be_bound(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api)
    assert (await bob.post(BINDINGS, binding("r", "nosuch"))).status == 404


async def test_a_patch_cannot_slip_a_rule_past_the_check(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api, rule("patch", "roles", groups="rbac.authorization.k8s.io"))
    await api.made(ROLES, role("r", rule("get", "pods")))
    patch = {"rules": [rule("*", "*", groups="*")]}
    for content_type in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
        assert (await bob.patch(f"{ROLES}/r", patch, content_type)).status == 403
    operations = [{"op": "add", "path": "/rules/-", "value": rule("*", "*", groups="*")}]
    assert (await bob.patch(f"{ROLES}/r", operations, "application/json-patch+json")).status == 403
    applied = role("r", rule("*", "*", groups="*"))
    url = f"{ROLES}/r?fieldManager=bob&force=true"
    assert (await bob.patch(url, applied, "application/apply-patch+yaml")).status == 403


# Impersonation.


async def test_an_administrator_acts_as_anyone(api: InProcess) -> None:
    question = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    target = f"{AUTHENTICATION}/selfsubjectreviews"
    reply = await api.post(target, question, impersonate_user="bob", impersonate_group="devs", impersonate_uid="7")
    info = {"username": "bob", "uid": "7", "groups": ["devs", "system:authenticated"]}
    assert reply.json["status"] == {"userInfo": info}
    assert (await api.get("/api/v1/pods", impersonate_user="bob")).status == 403


async def test_impersonation_takes_permission_for_each_part(api: InProcess, bob: InProcess) -> None:
    refused = await bob.get("/api/v1/pods", impersonate_user="alice")
    assert (refused.status, refused.message) == (
        403,
        'pods is forbidden: User "bob" cannot impersonate-on:user-info:list resource "pods" in API group "" at the '
        "cluster scope",
    )
    await api.made(CLUSTER_ROLES, cluster_role("acting", rule("impersonate", "users", names="alice")))
    await api.made(CLUSTER_BINDINGS, binding("acting", "acting", of="ClusterRoleBinding"))
    as_alice = await bob.get("/api/v1/pods", impersonate_user="alice")
    assert 'User "alice" cannot list' in as_alice.message
    as_root = await bob.get("/api/v1/pods", impersonate_user="alice", impersonate_group="system:masters")
    assert (as_root.status, as_root.json["details"]) == (403, {"name": "system:masters", "kind": "groups"})
    assert (await bob.get("/api/v1/pods", impersonate_user="carol")).status == 403
    alone = await bob.get("/api/v1/pods", impersonate_group="system:masters")
    assert alone.status == 400


async def test_impersonation_for_some_requests_opens_no_others(api: InProcess, bob: InProcess) -> None:
    on = rule("impersonate-on:user-info:list", "pods")
    be = rule("impersonate:user-info", "users", groups="authentication.k8s.io", names="alice")
    await api.made(CLUSTER_ROLES, cluster_role("acting", on, be))
    await api.made(CLUSTER_BINDINGS, binding("acting", "acting", of="ClusterRoleBinding"))
    assert 'User "alice" cannot list' in (await bob.get("/api/v1/pods", impersonate_user="alice")).message
    other = await bob.get("/api/v1/services", impersonate_user="alice")
    assert 'User "bob" cannot impersonate-on:user-info:list resource "services"' in other.message
    carol = await bob.get("/api/v1/pods", impersonate_user="carol")
    assert 'User "bob" cannot impersonate:user-info resource "users"' in carol.message


async def test_an_older_kubernetes_knows_of_no_such_impersonation() -> None:
    async with control_plane(settings=Settings(kubernetes_version="1.35")) as api:
        refused = await as_user(api, BOB).get("/api/v1/pods", impersonate_user="alice")
        assert 'User "bob" cannot impersonate resource "users"' in refused.message


# Tokens.


async def test_a_token_comes_from_its_account_and_goes_with_it(api: InProcess) -> None:
    await api.made(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    await api.made(BINDINGS, binding("robots", "view", user="system:serviceaccount:default:robot"))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await api.made(f"{ACCOUNTS}/robot/token", request))["status"]["token"]
    bearer = f"Bearer {token}"
    assert (await from_the_wire(api, CONFIG_MAPS, authorization=bearer)).status == 200
    assert (await from_the_wire(api, "/api/v1/namespaces/default/secrets", authorization=bearer)).status == 403
    reviewed = await review(api, "tokenreviews", "TokenReview", {"token": token}, AUTHENTICATION)
    assert reviewed["authenticated"] is True
    assert reviewed["user"]["username"] == "system:serviceaccount:default:robot"
    elsewhere = await review(
        api, "tokenreviews", "TokenReview", {"token": token, "audiences": ["vault"]}, AUTHENTICATION
    )
    assert elsewhere["user"] == {}
    assert elsewhere["error"].startswith("[invalid bearer token, token audiences")
    await api.delete(f"{ACCOUNTS}/robot")
    assert (await from_the_wire(api, CONFIG_MAPS, authorization=bearer)).status == 401


@pytest.mark.parametrize("token", ["guess", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "e30.e30.e30", "\u00e9"])
async def test_a_bad_token_is_refused_and_never_reported(
    api: InProcess, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    reply = await from_the_wire(api, CONFIG_MAPS, authorization=f"Bearer {token}")
    assert (reply.status, reply.message) == (401, "Unauthorized")
    assert token not in caplog.text


async def test_a_websocket_names_its_token_as_a_protocol(api: InProcess) -> None:
    await api.made(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await api.made(f"{ACCOUNTS}/robot/token", request))["status"]["token"]
    encoded = b64encode(token.encode()).decode().rstrip("=").replace("+", "-").replace("/", "_")
    protocols = f"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{encoded}"
    asking = partial(from_the_wire, api, CONFIG_MAPS, is_upgrade=True, upgrade="websocket")
    reply = await asking(sec_websocket_protocol=protocols)
    assert 'User "system:serviceaccount:default:robot"' in reply.message
    plain = await from_the_wire(api, CONFIG_MAPS, sec_websocket_protocol=protocols)
    assert 'User "system:anonymous"' in plain.message
    alone = protocols.removeprefix("v4.channel.k8s.io, ")
    for bad in (alone, f"{protocols}, {alone}", f"{protocols}*", protocols.replace(encoded, "_w")):
        assert (await asking(sec_websocket_protocol=bad)).status == 401


async def test_headers_of_proxies_mean_nothing_from_others(api: InProcess) -> None:
    reply = await from_the_wire(api, CONFIG_MAPS, x_remote_user="admin", x_remote_group="system:masters")
    assert (reply.status, 'User "system:anonymous"' in reply.message) == (403, True)


async def test_token_keys_are_published(api: InProcess) -> None:
    keys = (await api.get("/openid/v1/jwks")).json["keys"]
    assert [(key["kty"], key["crv"], key["alg"], "d" in key) for key in keys] == [("EC", "P-256", "ES256", False)]
    found = await api.get("/.well-known/openid-configuration", host="api.example:6443")
    assert found.json["jwks_uri"] == "https://api.example:6443/openid/v1/jwks"
    assert found.header("cache-control") == ["public, max-age=3600"]


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


# Writes that create need `create`.


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
