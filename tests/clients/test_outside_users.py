"""Users from outside of the cluster: of a token file, of a directory behind a webhook, of an OIDC provider."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from tests.auth.https_server import HttpsServer, https_server
from tests.clients.server_process import ServerProcess

from pinnace.auth.authentication import jwt

DIRECTORY = {"directory-token": {"username": "carol", "groups": ["engineering"]}}
"""The users of the webhook."""
KEY = ec.generate_private_key(ec.SECP256R1())
MAPS = "/api/v1/namespaces/default/configmaps"


def outside(path: str, sent: Any, url: str) -> Any:
    """A provider, a directory and a policy, all on one server."""
    match path:
        case "/.well-known/openid-configuration":
            return {"issuer": url, "jwks_uri": f"{url}/keys"}
        case "/keys":
            return {"keys": [jwt.to_jwk(KEY.public_key())]}
        case "/authenticate":
            user = DIRECTORY.get(sent["spec"]["token"])
            return {"status": {"authenticated": True, "user": user} if user else {"authenticated": False}}
        case "/authorize":
            about = sent["spec"].get("resourceAttributes") or {}
            is_fine = "engineering" in sent["spec"].get("groups", ()) and about.get("resource") == "configmaps"
            return {"status": {"allowed": is_fine, "reason": "engineers read settings" if is_fine else ""}}
    return 404


@dataclass(frozen=True, slots=True)
class Reached:
    host: str
    tls: ssl.SSLContext
    elsewhere: HttpsServer
    log: Path

    def get(self, path: str, token: str) -> tuple[int, Any]:
        connection = http.client.HTTPSConnection(self.host, context=self.tls, timeout=60)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    directory = tmp_path_factory.mktemp("outside")
    (directory / "tokens.csv").write_text('file-token,dave,1,"system:masters"\n')
    (directory / "tokens.csv").chmod(0o600)
    with https_server(directory, lambda path, sent: outside(path, sent, elsewhere.url)) as elsewhere:
        options = {
            "token-auth-file": directory / "tokens.csv",
            "oidc-issuer-url": elsewhere.url,
            "oidc-client-id": "kubernetes",
            "oidc-username-prefix": "oidc:",
            "oidc-groups-claim": "groups",
            "oidc-ca-file": elsewhere.ca,
            "oidc-signing-algs": "ES256",
            "authentication-token-webhook-config-file": elsewhere.kubeconfig(directory / "a", at="/authenticate"),
            "authorization-webhook-config-file": elsewhere.kubeconfig(directory / "z", at="/authorize"),
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        server = ServerProcess.start(directory, "--ephemeral", *arguments)
        try:
            config = yaml.safe_load(server.await_kubeconfig().read_text())["clusters"][0]["cluster"]
            (directory / "cluster.crt").write_bytes(_decoded(config["certificate-authority-data"]))
            tls = ssl.create_default_context(cafile=str(directory / "cluster.crt"))
            yield Reached(config["server"].removeprefix("https://"), tls, elsewhere, server.log)
        finally:
            server.stop()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)


def test_a_user_of_the_file_comes_in(cluster: Reached) -> None:
    assert cluster.get(MAPS, "file-token")[0] == 200


def test_a_user_of_the_directory_may_what_the_policy_says(cluster: Reached) -> None:
    assert cluster.get(MAPS, "directory-token")[0] == 200
    status, answer = cluster.get("/api/v1/namespaces/default/pods", "directory-token")
    assert (status, 'User "carol" cannot list resource "pods"' in answer["message"]) == (403, True)


def test_a_user_of_the_provider_has_the_groups_of_the_token(cluster: Reached) -> None:
    claims = {"iss": cluster.elsewhere.url, "aud": "kubernetes", "sub": "erin", "exp": int(time.time()) + 600}
    status, answer = cluster.get(MAPS, jwt.sign(claims, KEY))
    assert (status, 'User "oidc:erin"' in answer["message"]) == (403, True)
    assert cluster.get(MAPS, jwt.sign({**claims, "groups": ["engineering"]}, KEY))[0] == 200
    assert cluster.get(MAPS, jwt.sign({**claims, "exp": 1}, KEY))[0] == 401


def test_others_stay_out_and_nothing_is_written_about_their_tokens(cluster: Reached) -> None:
    assert cluster.get(MAPS, "a-very-secret-guess")[0] == 401
    assert "a-very-secret-guess" not in cluster.log.read_text()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--token-auth-file=/nowhere/tokens.csv", "/nowhere/tokens.csv"),
        ("--authentication-token-webhook-config-file=/nowhere/config", "/nowhere/config"),
        ("--oidc-issuer-url=http://127.0.0.1", "must be an https URL"),
        ("--oidc-issuer-url=https://127.0.0.1", "needs a client id"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(tmp_path: Path, argument: str, message: str) -> None:
    server = ServerProcess.start(tmp_path, "--ephemeral", argument)
    assert server.await_end() == 1
    assert message in server.log.read_text()
