"""kubectl's questions about access, tokens and acting as others; and certificates over the wire."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.auth.intermediates import intermediate
from tests.clients.kubectl_command import Kubectl
from tests.clients.server_process import ServerProcess

from pinnace.auth.certificates.authority import KeyPair, PairFiles, issue, load_pair, new_ca

ROBOT = "system:serviceaccount:{namespace}:robot"


def claims_of(token: str) -> Any:
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def with_token(kubectl: Kubectl, directory: Path, token: str) -> Kubectl:
    """kubectl as the user of the token, without the administrator's certificate."""
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    path = directory / "kubeconfig-with-token"
    path.write_text(yaml.safe_dump(config))
    return Kubectl(kubectl.binary, path, kubectl.cache, kubectl.namespace)


def test_can_i_answers_for_oneself_and_for_others(kubectl: Kubectl) -> None:
    assert kubectl("auth can-i '*' '*' --all-namespaces").strip() == "yes"
    outcome = kubectl.outcome("auth can-i list pods --as bob")
    assert (outcome.code, outcome.stdout.strip()) == (1, "no")
    kubectl("create rolebinding viewers --clusterrole=view --user=bob --group=devs")
    assert kubectl("auth can-i list pods --as bob").strip() == "yes"
    assert kubectl("auth can-i list pods --as carol --as-group devs").strip() == "yes"
    assert kubectl.outcome("auth can-i get secrets --as bob").stdout.strip() == "no"
    assert kubectl.outcome("auth can-i create pods --subresource=exec --as bob").stdout.strip() == "no"
    assert kubectl("auth can-i get /version --as bob").strip() == "yes"
    assert kubectl.outcome("auth can-i get /metrics --as bob").stdout.strip() == "no"


def test_can_i_lists_what_one_may(kubectl: Kubectl) -> None:
    kubectl("create role reader --verb=get,list --resource=pods,deployments.apps --resource-name=web")
    kubectl("create rolebinding readers --role=reader --user=bob")
    rows = [line.split() for line in kubectl("auth can-i --list --as bob").splitlines()]
    assert ["pods", "[]", "[web]", "[get", "list]"] in rows
    assert ["deployments.apps", "[]", "[web]", "[get", "list]"] in rows
    assert ["[/version]", "[]", "[get]"] in rows
    assert not any(row[0] == "*.*" for row in rows)


def test_whoami_prints_the_impersonated_user(kubectl: Kubectl) -> None:
    user = kubectl.json("auth whoami --as bob --as-group devs --as-uid 7")["status"]["userInfo"]
    assert user == {"username": "bob", "uid": "7", "groups": ["devs", "system:authenticated"]}
    account = ROBOT.format(namespace=kubectl.namespace)
    user = kubectl.json(f"auth whoami --as {account}")["status"]["userInfo"]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{kubectl.namespace}", "system:authenticated"]
    assert user == {"username": account, "groups": groups}


def test_a_refusal_reads_as_it_does_everywhere(kubectl: Kubectl) -> None:
    error = kubectl.failure("get pods --as bob")
    assert error == (
        'Error from server (Forbidden): pods is forbidden: User "bob" cannot list resource "pods" in API group "" '
        f'in the namespace "{kubectl.namespace}"'
    )


def test_a_created_token_works_within_its_role(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create serviceaccount robot")
    account = ROBOT.format(namespace=kubectl.namespace)
    kubectl(f"create rolebinding robots --clusterrole=edit --serviceaccount={kubectl.namespace}:robot")
    token = kubectl("create token robot --duration=10m").strip()
    claims = claims_of(token)
    assert (claims["sub"], claims["exp"] - claims["iat"]) == (account, 600)
    robot = with_token(kubectl, tmp_path, token)
    assert robot.json("auth whoami")["status"]["userInfo"]["username"] == account
    robot("create configmap settings --from-literal=a=b")
    assert "cannot list resource" in robot.failure("get nodes")
    error = robot.failure("create clusterrolebinding me --clusterrole=cluster-admin --user=me")
    assert f'User "{account}" cannot create resource "clusterrolebindings"' in error
    assert "cannot impersonate-on:user-info:list" in robot.failure("get pods --as admin")
    kubectl("delete serviceaccount robot")
    assert "Unauthorized" in robot.failure("get configmaps") or "logged in" in robot.failure("get configmaps")


def test_a_token_for_others_is_refused_here(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create serviceaccount robot")
    token = kubectl("create token robot --audience=vault").strip()
    assert claims_of(token)["aud"] == ["vault"]
    outcome = with_token(kubectl, tmp_path, token).outcome("get pods")
    assert outcome.code != 0
    assert token not in outcome.stdout + outcome.stderr


def test_a_token_bound_to_a_secret_dies_with_it(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create serviceaccount robot")
    kubectl("create secret generic holder")
    token = kubectl("create token robot --bound-object-kind=Secret --bound-object-name=holder").strip()
    robot = with_token(kubectl, tmp_path, token)
    assert robot.json("auth whoami")["status"]["userInfo"]["username"] == ROBOT.format(namespace=kubectl.namespace)
    kubectl("delete secret holder")
    assert robot.outcome("auth whoami").code != 0


def test_roles_are_reconciled_with_kubectl(kubectl: Kubectl, tmp_path: Path) -> None:
    manifest = tmp_path / "roles.yaml"
    manifest.write_text(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n"
        f"metadata: {{name: reader, namespace: {kubectl.namespace}}}\n"
        "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n"
    )
    assert "reader reconciled" in kubectl(f"auth reconcile -f {manifest}")
    assert kubectl.json("get role reader")["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]


def test_one_may_act_as_another_for_some_requests_alone(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create serviceaccount robot")
    name = f"acting-{kubectl.namespace}"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]},
            {
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["users"],
                "resourceNames": ["jane"],
                "verbs": ["impersonate:user-info"],
            },
        ],
    }
    kubectl("create -f -", stdin=json.dumps(role))
    kubectl(f"create clusterrolebinding {name} --clusterrole={name} --serviceaccount={kubectl.namespace}:robot")
    kubectl("create rolebinding viewers --clusterrole=view --user=jane")
    robot = with_token(kubectl, tmp_path, kubectl("create token robot").strip())
    assert "No resources found" in robot.outcome("get pods --as jane").stderr
    assert 'cannot impersonate-on:user-info:list resource "services"' in robot.failure("get services --as jane")
    assert 'cannot impersonate:user-info resource "users"' in robot.failure("get pods --as admin")
    assert "impersonating the system:masters group is not allowed" in robot.failure(
        "get pods --as jane --as-group system:masters"
    )
    kubectl(f"delete clusterrole,clusterrolebinding {name}")


# Certificates, over sockets.


@dataclass(frozen=True, slots=True)
class Wire:
    """A server of one's own, whose keys lie open."""

    pki: Path
    port: int

    def pair(self, name: str) -> KeyPair:
        return load_pair(PairFiles(self.pki / f"{name}.crt", self.pki / f"{name}.key"))

    def get(
        self, path: str, certificate: KeyPair | None, directory: Path, via: KeyPair | None = None, /, **headers: str
    ) -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        if certificate is not None:
            both = directory / "client.pem"
            chain = via.certificate_pem if via is not None else b""
            both.write_bytes(certificate.certificate_pem + chain + certificate.key_pem)
            context.load_cert_chain(both)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("GET", path, headers=named)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    directory = tmp_path_factory.mktemp("own")
    server = ServerProcess.start(directory, "--data-dir", str(directory / "data"))
    try:
        config = yaml.safe_load(server.await_kubeconfig().read_text())
        port = int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])
        yield Wire(directory / "data" / "pki", port)
    finally:
        server.stop()


SMUGGLED = {"X_Remote_User": "admin", "X_Remote_Group": "system:masters"}
PODS = "/api/v1/namespaces/default/pods"


def test_a_user_s_certificate_cannot_carry_another_s_name(wire: Wire, tmp_path: Path) -> None:
    bob = issue(wire.pair("ca"), common_name="bob", client=True)
    status, answer = wire.get(PODS, bob, tmp_path, **SMUGGLED)
    assert (status, 'User "bob" cannot list' in answer["message"]) == (403, True)
    status, answer = wire.get(PODS, None, tmp_path, **SMUGGLED)
    assert (status, 'User "system:anonymous" cannot list' in answer["message"]) == (403, True)


def test_a_proxy_s_certificate_carries_a_name_and_is_none(wire: Wire, tmp_path: Path) -> None:
    proxy = wire.pair("front-proxy-client")
    assert wire.get(PODS, proxy, tmp_path, **SMUGGLED)[0] == 200
    assert wire.get(PODS, proxy, tmp_path)[0] == 401
    mallory = issue(
        wire.pair("front-proxy-ca"), common_name="kubernetes-admin", organizations=["system:masters"], client=True
    )
    assert wire.get(PODS, mallory, tmp_path, **SMUGGLED)[0] == 401


def test_a_certificate_of_an_unknown_authority_is_refused(wire: Wire, tmp_path: Path) -> None:
    masters = ["system:masters"]
    forged = issue(new_ca(), common_name="kubernetes-admin", organizations=masters, client=True)
    for_servers = issue(wire.pair("ca"), common_name="admin", organizations=masters, server_names=["localhost"])
    signer = issue(wire.pair("ca"), common_name="bob", client=True)  # A user's certificate is no authority.
    by_user = issue(signer, common_name="kubernetes-admin", organizations=masters, client=True)
    for certificate, chain in ((forged, ()), (for_servers, ()), (by_user, (signer,))):
        status, answer = wire.get(PODS, certificate, tmp_path, *chain, **SMUGGLED)
        assert (status, answer["message"]) == (401, "Unauthorized")


@pytest.mark.parametrize("days", [-2, 2], ids=["long ago", "some day"])
def test_an_expired_certificate_is_refused_with_the_reason(wire: Wire, tmp_path: Path, days: int) -> None:
    then = datetime.now(UTC) + timedelta(days=days)
    bob = issue(wire.pair("ca"), common_name="bob", client=True, now=then, lifetime=timedelta(days=1))
    status, answer = wire.get(PODS, bob, tmp_path)
    assert (status, answer["message"]) == (401, "Unauthorized")
    between = intermediate(wire.pair("ca"), now=then)
    signer = KeyPair(intermediate(wire.pair("ca")).certificate, between.key)  # Its signatures would be valid today.
    admin = issue(signer, common_name="kubernetes-admin", organizations=["system:masters"], client=True)
    assert wire.get(PODS, admin, tmp_path, between)[0] == 401


def test_users_of_an_intermediate_authority_are_authenticated(wire: Wire, tmp_path: Path) -> None:
    between = intermediate(wire.pair("ca"))
    bob = issue(between, common_name="bob", client=True)
    status, answer = wire.get(PODS, bob, tmp_path, between, **SMUGGLED)
    assert (status, 'User "bob" cannot list' in answer["message"]) == (403, True)
    proxy = intermediate(wire.pair("front-proxy-ca"))
    mallory = issue(proxy, common_name="kubernetes-admin", organizations=["system:masters"], client=True)
    assert wire.get(PODS, mallory, tmp_path, proxy, **SMUGGLED)[0] == 401


def test_a_user_cannot_sign_for_others(wire: Wire, tmp_path: Path) -> None:
    bob = issue(wire.pair("ca"), common_name="bob", client=True)
    forged = issue(bob, common_name="kubernetes-admin", organizations=["system:masters"], client=True)
    assert wire.get(PODS, forged, tmp_path, bob)[0] == 401
    alien = intermediate(new_ca())
    admin = issue(alien, common_name="kubernetes-admin", organizations=["system:masters"], client=True)
    assert wire.get(PODS, admin, tmp_path, alien)[0] == 401
    server = issue(
        wire.pair("ca"), common_name="kubernetes-admin", organizations=["system:masters"], server_names=["a"]
    )
    assert wire.get(PODS, server, tmp_path)[0] == 401  # It is for servers.
