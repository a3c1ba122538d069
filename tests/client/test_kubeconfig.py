"""How to reach a cluster, read from kubeconfigs of every form."""

from __future__ import annotations

import base64
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.client.credentials import ExecPlugin, FromExecPlugin, Identity, NoCredentials, TokenFile
from pinnace.client.kubeconfig import Access, KubeconfigError, access_of, find_access, in_cluster, load
from pinnace.process.clock import to_rfc3339
from pinnace.testing.clock import ManualClock


def config(*, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, name: str = "a") -> Any:
    return {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example.com/", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}],
        "current-context": name,
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


async def identity_of(access: Access) -> Identity:
    return await access.credentials.identity()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "secret"}, Identity(authorization="Bearer secret")),
        ({"username": "me", "password": "pass"}, Identity(authorization="Basic bWU6cGFzcw==")),
        (
            {"client-certificate-data": encoded("cert"), "client-key-data": encoded("key")},
            Identity(certificate=b"cert", key=b"key"),
        ),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "id"}}}, Identity(authorization="Bearer id")),
        ({}, Identity()),
    ],
    ids=["token", "password", "certificate", "provider", "anonymous"],
)
async def test_users_of_every_form_are_read(user: dict[str, Any], expected: Identity) -> None:
    assert await identity_of(access_of(config(user=user))) == expected


async def test_files_are_found_beside_the_kubeconfig_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("authority")
    (tmp_path / "me.pem").write_text("cert")
    (tmp_path / "me.key").write_text("key")
    user = {"client-certificate": "me.pem", "client-key": "me.key"}
    file = write(tmp_path / "config", config(user=user, cluster={"certificate-authority": "ca.pem"}))
    access = find_access(path=file)
    assert access.ca == b"authority"
    assert await identity_of(access) == Identity(certificate=b"cert", key=b"key")


def test_a_cluster_may_say_how_to_reach_it() -> None:
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "other", "proxy-url": "http://proxy:3128"}
    access = access_of(config(cluster=cluster))
    assert access.server == "https://a.example.com"
    assert (access.insecure, access.server_name, access.proxy) == (True, "other", "http://proxy:3128")
    assert access.namespace == "ns-a"


def test_one_may_act_as_another() -> None:
    user = {"as": "jane", "as-groups": ["a", "b"], "as-user-extra": {"scopes": ["view"]}}
    assert access_of(config(user=user)).headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scopes", "view"),
    )


def test_of_several_files_the_first_counts(tmp_path: Path) -> None:
    first = write(tmp_path / "one", config(name="a"))
    both = config(name="b")
    both["clusters"].append({"name": "a", "cluster": {"server": "https://late.example.com"}})
    second = write(tmp_path / "two", both)
    environment = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "missing"), str(first), str(second)])}
    assert find_access(environment=environment).server == "https://a.example.com"
    assert find_access(environment=environment, context="b").server == "https://b.example.com"


def test_a_context_that_is_missing_is_reported_with_those_that_are_not(tmp_path: Path) -> None:
    merged = load([write(tmp_path / "config", config())])
    with pytest.raises(KubeconfigError, match="no context 'other'; it has: a"):
        access_of(merged, "other")


def test_no_kubeconfig_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"\.kube"):
        find_access(environment={"HOME": str(tmp_path)})
    with pytest.raises(KubeconfigError, match="does not exist"):
        find_access(path=tmp_path / "missing")


async def test_within_a_pod_its_service_account_is_used(tmp_path: Path) -> None:
    for name, content in (("token", "mine\n"), ("ca.crt", "authority"), ("namespace", "shop")):
        (tmp_path / name).write_text(content)
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (access.server, access.ca, access.namespace) == ("https://[fd00::1]:6443", b"authority", "shop")
    assert await identity_of(access) == Identity(authorization="Bearer mine")


async def test_a_token_file_is_read_again_when_it_may_have_changed(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "token"
    file.write_text("one")
    credentials = TokenFile(file, clock=clock)
    assert (await credentials.identity()).authorization == "Bearer one"
    file.write_text("two")
    assert (await credentials.identity()).authorization == "Bearer one"
    await clock.advance(60)
    assert (await credentials.identity()).authorization == "Bearer two"
    file.unlink()
    assert (await credentials.identity(afresh=True)).authorization == "Bearer two"


def plugin(directory: Path, status: dict[str, Any], *, code: int = 0) -> ExecPlugin:
    """A plug-in that counts its runs and keeps its input."""
    answer = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status}
    (directory / "answer").write_text(json.dumps(answer))
    script = f'echo run >> {directory}/runs; echo "$KUBERNETES_EXEC_INFO" > {directory}/told; cat {directory}/answer'
    return ExecPlugin(
        command="/bin/sh", args=("-c", f"{script}; echo sorry >&2; exit {code}"), cluster={"server": "here"}
    )


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text().splitlines())


async def test_a_plug_in_runs_again_only_when_what_it_gave_expires_or_is_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    status = {"token": "t", "expirationTimestamp": to_rfc3339(clock.now() + timedelta(minutes=10))}
    credentials = FromExecPlugin(plugin(tmp_path, status), clock=clock)
    assert (await credentials.identity()).authorization == "Bearer t"
    await credentials.identity()
    assert runs(tmp_path) == 1
    await credentials.identity(afresh=True)
    assert runs(tmp_path) == 2
    await clock.advance(595)
    await credentials.identity()
    assert runs(tmp_path) == 3
    document = json.loads((tmp_path / "told").read_text())
    assert document["spec"] == {"interactive": False, "cluster": {"server": "here"}}


async def test_a_plug_in_may_give_a_certificate(tmp_path: Path) -> None:
    credentials = FromExecPlugin(plugin(tmp_path, {"clientCertificateData": "cert", "clientKeyData": "key"}))
    assert await credentials.identity() == Identity(certificate=b"cert", key=b"key")


async def test_a_plug_in_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(NoCredentials, match="failed with 3: sorry"):
        await FromExecPlugin(plugin(tmp_path, {}, code=3)).identity()
    with pytest.raises(NoCredentials, match="neither a token nor a certificate"):
        await FromExecPlugin(plugin(tmp_path, {})).identity()
    with pytest.raises(NoCredentials, match=r"cannot be run: No such file or directory\nbrew install it"):
        await FromExecPlugin(ExecPlugin(command="/no/such/plug-in", install_hint="brew install it")).identity()


async def test_a_plug_in_beside_a_kubeconfig_is_found_from_within_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}
    script = tmp_path / "give.sh"
    script.write_text(f"#!/bin/sh\necho '{json.dumps(status)}'\n")
    script.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./give.sh"}}
    write(tmp_path / "kubeconfig", config(user=user))
    monkeypatch.chdir(tmp_path)
    assert (await identity_of(find_access(path=Path("kubeconfig")))).authorization == "Bearer t"
