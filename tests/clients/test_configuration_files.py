"""A server with configuration files for authentication and authorization, which are saved while it runs."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from tests.auth.https_server import https_server
from tests.clients.server_process import ServerProcess

from pinnace.auth.authentication import jwt

KEY = ec.generate_private_key(ec.SECP256R1())
GROUP = "apiserver.config.k8s.io/v1"


def get(url: str, tls: ssl.SSLContext, path: str, token: str = "") -> tuple[int, str]:
    connection = http.client.HTTPSConnection(url.removeprefix("https://"), context=tls, timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_configuration_files_take_effect_when_they_are_saved(tmp_path: Path) -> None:
    def answer(path: str, sent: Any) -> Any:
        match path:
            case "/.well-known/openid-configuration":
                return {"issuer": elsewhere.url, "jwks_uri": f"{elsewhere.url}/keys"}
            case "/keys":
                return {"keys": [jwt.to_jwk(KEY.public_key())]}
        return {"status": {"allowed": "policed" in sent["spec"].get("groups", ())}}

    authentication, authorization = tmp_path / "authentication.yaml", tmp_path / "authorization.yaml"
    with https_server(tmp_path, answer) as elsewhere:
        kubeconfig = elsewhere.kubeconfig(tmp_path / "policy", at="/authorize")
        issuer = {"url": elsewhere.url, "audiences": ["kubernetes"], "certificateAuthority": elsewhere.ca.read_text()}

        def save_authentication(prefix: str, **others: Any) -> None:
            mappings = {"username": {"expression": f"'{prefix}' + claims.sub"}, "groups": {"claim": "g", "prefix": ""}}
            save(
                authentication,
                kind="AuthenticationConfiguration",
                jwt=[{"issuer": issuer, "claimMappings": mappings}],
                anonymous={"enabled": True, "conditions": [{"path": "/livez"}]},
                **others,
            )

        save_authentication("first:")
        save(authorization, kind="AuthorizationConfiguration", authorizers=[{"type": "RBAC", "name": "rbac"}])
        files = [f"--authentication-config={authentication}", f"--authorization-config={authorization}"]
        server = ServerProcess.start(tmp_path, "--ephemeral", *files)
        try:
            config = yaml.safe_load(server.await_kubeconfig().read_text())
            cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
            url, tls = cluster["server"], ssl.create_default_context(cadata=decoded(cluster))
            claims = {"iss": elsewhere.url, "aud": "kubernetes", "sub": "bob", "exp": int(time.time()) + 600}
            token = jwt.sign({**claims, "g": ["policed"]}, KEY)
            who = "/apis/authentication.k8s.io/v1/namespaces"

            assert 'User "first:bob"' in forbidden(url, tls, token)
            assert [get(url, tls, path)[0] for path in ("/livez", "/readyz", "/version", who)] == [200, 401, 401, 401]

            save_authentication("second:")
            until(lambda: 'User "second:bob"' in forbidden(url, tls, token))
            save_authentication("third:", unknown=True)
            until(lambda: 'unknown field "unknown"' in server.log.read_text())
            assert "the configuration stays as it was" in server.log.read_text()
            assert 'User "second:bob"' in forbidden(url, tls, token)

            settings = {
                "timeout": "3s",
                "subjectAccessReviewVersion": "v1",
                "failurePolicy": "Deny",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(kubeconfig)},
            }
            policy = {"type": "Webhook", "name": "policy", "webhook": settings}
            save(
                authorization,
                kind="AuthorizationConfiguration",
                authorizers=[policy, {"type": "RBAC", "name": "rbac"}],
            )
            until(lambda: get(url, tls, "/api/v1/pods", token)[0] == 200)

            tls.load_cert_chain(*client_pair(tmp_path, user))
            metrics = get(url, tls, "/metrics")[1]
        finally:
            server.stop()
    for subject, status in (("authentication", "failure"), ("authentication", "success"), ("authorization", "success")):
        total = rf'apiserver_{subject}_config_controller_automatic_reloads_total{{apiserver_id_hash="sha256:\w+",'
        assert re.search(rf'{total}status="{status}"}} 1', metrics)
    assert re.search('apiserver_authorization_config_controller_last_config_info{.*hash="sha256:', metrics)


def test_a_server_does_not_start_with_a_file_that_it_cannot_use(tmp_path: Path) -> None:
    save(tmp_path / "a.yaml", kind="AuthenticationConfiguration", jwt=[{}])
    server = ServerProcess.start(tmp_path, "--ephemeral", f"--authentication-config={tmp_path / 'a.yaml'}")
    assert server.await_end() == 1
    assert "jwt[0].issuer.url: Required value" in server.log.read_text()
    assert "Traceback" not in server.log.read_text()


def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds. Fail after a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the file has no effect"
        time.sleep(0.02)


def save(path: Path, **document: Any) -> None:
    """Replace a file at once, as editors and mounted ConfigMaps do."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"apiVersion": GROUP, **document}))
    new.rename(path)


def forbidden(url: str, tls: ssl.SSLContext, token: str) -> str:
    status, text = get(url, tls, "/api/v1/pods", token)
    assert status == 403, text
    return str(json.loads(text)["message"])


def decoded(cluster: dict[str, str]) -> str:
    return b64decode(cluster["certificate-authority-data"]).decode()


def client_pair(directory: Path, user: dict[str, str]) -> tuple[Path, Path]:
    certificate, key = directory / "client.crt", directory / "client.key"
    certificate.write_bytes(b64decode(user["client-certificate-data"]))
    key.write_bytes(b64decode(user["client-key-data"]))
    return certificate, key
