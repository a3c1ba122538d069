"""A machine joins a cluster with a bootstrap token, and may do no more than a node may."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pinnace.auth.certificates.authority import KeyPair, issue, new_ca
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import Access, KubeconfigError, find_access
from pinnace.client.kubeconfig_files import write
from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.settings import Settings
from pinnace.model import errors
from pinnace.node.identity.certificates import CLIENT_FILE, CertificateRenewal, NodeCertificate, load, save
from pinnace.node.identity.joining import (
    BootstrapToken,
    JoinFailed,
    access_of_token,
    bootstrap_node,
    hash_of,
    node_access,
)

NODE = "joined"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running(Settings()) as made:
        write(tmp_path / "admin.conf", made.access)
        yield made


@pytest.fixture
async def token(cluster: RunningCluster, tmp_path: Path) -> BootstrapToken:
    """The parts of the command that `pinnace token create` prints."""
    words = (await _pinnace("token", "create", "--print-join-command", directory=tmp_path)).split()
    assert words[:2] == ["pinnace", "node"]
    flags = dict(zip(words[2::2], words[3::2], strict=True))
    return BootstrapToken(
        server=flags["--server"], token=flags["--token"], ca_hashes=[flags["--discovery-token-ca-cert-hash"]]
    )


async def _pinnace(*arguments: str, directory: Path) -> str:
    command = [sys.executable, "-m", "pinnace.cli.main", *arguments, "--kubeconfig", str(directory / "admin.conf")]
    done = await asyncio.to_thread(lambda: subprocess.run(command, capture_output=True, text=True, timeout=60))
    assert done.returncode == 0, done.stderr
    return done.stdout


async def _user(client: Client) -> tuple[str, list[str]]:
    review = await client.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    current = review["status"]["userInfo"]
    return current["username"], current["groups"]


async def test_a_token_gives_a_certificate_of_the_node(token: BootstrapToken, tmp_path: Path) -> None:
    access = await node_access(await access_of_token(token), NODE, tmp_path / "pki")
    async with connect(access) as client:
        name, groups = await _user(client)
    assert name == f"system:node:{NODE}"
    assert "system:nodes" in groups
    assert (tmp_path / "pki" / CLIENT_FILE).stat().st_mode & 0o777 == 0o600


async def test_the_certificate_is_kept_for_the_next_start(token: BootstrapToken, tmp_path: Path) -> None:
    access = await access_of_token(token)
    await node_access(access, NODE, tmp_path / "pki")
    first = load(tmp_path / "pki" / CLIENT_FILE)
    nowhere = replace(access, server="https://127.0.0.1:1")
    await node_access(nowhere, NODE, tmp_path / "pki")
    assert load(tmp_path / "pki" / CLIENT_FILE) == first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"ca_hashes": [f"sha256:{'0' * 64}"]}, "which is not expected", id="another CA"),
        pytest.param({"ca_hashes": []}, "--discovery-token-ca-cert-hash", id="no hash"),
        pytest.param({"token": "no token"}, "must have the form", id="no token"),
        pytest.param({"token": ".0123456789abcdef"}, "must have the form", id="half a token"),
    ],
)
async def test_a_machine_does_not_join_what_it_cannot_trust(
    token: BootstrapToken, change: dict[str, object], message: str
) -> None:
    with pytest.raises(JoinFailed, match=message):
        await access_of_token(replace(token, **change))  # type: ignore[arg-type]


async def test_a_wrong_secret_is_found_before_it_is_sent(token: BootstrapToken) -> None:
    wrong = f"{token.token.partition('.')[0]}.0123456789abcdef"
    with pytest.raises(JoinFailed, match="has not signed"):
        await access_of_token(replace(token, token=wrong))


async def test_an_administrator_can_make_a_node_too(cluster: RunningCluster, tmp_path: Path) -> None:
    access = await node_access(find_access(path=tmp_path / "admin.conf"), NODE, tmp_path / "pki")
    async with connect(access) as client:
        assert (await _user(client))[0] == f"system:node:{NODE}"


async def test_a_bootstrap_kubeconfig_is_needed_once(cluster: RunningCluster, tmp_path: Path) -> None:
    admin, own, pki = tmp_path / "admin.conf", tmp_path / "kubelet.conf", tmp_path / "pki"
    async with connect(await bootstrap_node(admin, own, NODE, pki)) as client:
        assert (await _user(client))[0] == f"system:node:{NODE}"
    assert own.stat().st_mode & 0o777 == 0o600
    async with connect(find_access(path=own)) as client:
        assert (await _user(client))[0] == f"system:node:{NODE}"
    first = load(pki / CLIENT_FILE)
    async with connect(await bootstrap_node(tmp_path / "gone.conf", own, NODE, pki)) as client:
        assert (await _user(client))[0] == f"system:node:{NODE}"
    assert load(pki / CLIENT_FILE) == first
    (pki / CLIENT_FILE).unlink()
    with pytest.raises(KubeconfigError, match=r"gone\.conf"):
        await bootstrap_node(tmp_path / "gone.conf", own, NODE, pki)
    await bootstrap_node(admin, own, NODE, pki)
    assert load(pki / CLIENT_FILE) != first


async def test_a_node_may_touch_its_own_objects_alone(token: BootstrapToken, tmp_path: Path) -> None:
    access = await node_access(await access_of_token(token), NODE, tmp_path / "pki")
    async with connect(access) as client:
        await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        with pytest.raises(errors.Forbidden, match="not allowed to modify"):
            await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})
        with pytest.raises(errors.Forbidden, match="No Object name found"):
            await client.list("v1/Secret", namespace="kube-system")
        with pytest.raises(errors.Forbidden, match="no relationship found"):
            await client.get("v1/ConfigMap", "extension-apiserver-authentication", namespace="kube-system")


async def test_tokens_are_listed_and_deleted(token: BootstrapToken, tmp_path: Path) -> None:
    name = token.token.partition(".")[0]
    other = (await _pinnace("token", "create", directory=tmp_path)).partition(".")[0]
    listed = await _pinnace("token", "list", directory=tmp_path)
    assert name in listed
    assert other in listed
    await _pinnace("token", "delete", name, directory=tmp_path)
    assert name not in await _pinnace("token", "list", directory=tmp_path)


async def test_a_certificate_is_renewed_before_it_expires(token: BootstrapToken, tmp_path: Path) -> None:
    path = tmp_path / "pki" / CLIENT_FILE
    access = await node_access(await access_of_token(token), NODE, path.parent)
    old = load(path)
    async with connect(access) as client:
        renewal = CertificateRenewal(client, NODE, path, share=0.0)
        running_renewal = asyncio.ensure_future(renewal.run())
        try:
            async with asyncio.timeout(60):
                while load(path) == old:
                    await asyncio.sleep(0.01)
        finally:
            running_renewal.cancel()
            await asyncio.wait([running_renewal])
        assert (await _user(client))[0] == f"system:node:{NODE}"


def _issued(ca: KeyPair, node: str, *, now: datetime) -> NodeCertificate:
    pair = issue(ca, common_name=f"system:node:{node}", client=True, lifetime=timedelta(days=10), now=now)
    return NodeCertificate(pair.certificate_pem, pair.key_pem)


def test_a_certificate_of_another_time_node_or_cluster_is_not_used(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ours, other = new_ca(now=now), new_ca(now=now)
    made = _issued(ours, NODE, now=now)
    save(tmp_path / CLIENT_FILE, made)
    assert load(tmp_path / CLIENT_FILE) == made
    assert made.is_usable(NODE, ours.certificate_pem, now)
    assert not made.is_usable("other", ours.certificate_pem, now)
    assert not made.is_usable(NODE, other.certificate_pem, now)
    assert not made.is_usable(NODE, ours.certificate_pem, now + timedelta(days=11))
    assert hash_of(ours.certificate_pem) != hash_of(other.certificate_pem)
    assert made.renewal_time(0.8) < now + timedelta(days=9)


def test_an_access_without_a_certificate_file_needs_the_cluster(tmp_path: Path) -> None:
    assert not (tmp_path / CLIENT_FILE).exists()
    with pytest.raises(Exception, match="cannot be reached"):
        asyncio.run(node_access(Access(server="https://127.0.0.1:1"), NODE, tmp_path))
