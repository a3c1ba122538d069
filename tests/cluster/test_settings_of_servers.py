"""Authorization modes, admission plug-ins, the service range and given keys of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pinnace.admission.plugin_table import AdmissionPluginError
from pinnace.auth.certificates.authority import CertificateError, KeyFiles, ensure_certificates, use_key_files
from pinnace.auth.settings import AuthSettings
from pinnace.cluster.cluster import running
from pinnace.cluster.control_plane import build
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.security import AuthorizationModeError
from pinnace.cluster.settings import AdmissionSettings, Settings
from pinnace.model import errors
from pinnace.model.users import User
from pinnace.store.memory import MemoryStore
from pinnace.testing.cluster import Cluster, running_cluster


@asynccontextmanager
async def cluster_with(*modes: str) -> AsyncIterator[Cluster]:
    async with running_cluster(settings=Settings(auth=AuthSettings(authorization_modes=modes))) as cluster:
        yield cluster


async def test_always_allow_allows_what_no_role_does() -> None:
    async with cluster_with("AlwaysAllow") as cluster:
        await cluster.client_as("jane").list("v1/Secret")


@pytest.mark.parametrize("modes", [("RBAC",), ("Node", "RBAC"), ()])
async def test_the_other_modes_deny_a_user_without_roles(modes: tuple[str, ...]) -> None:
    async with cluster_with(*modes) as cluster:
        with pytest.raises(errors.Forbidden):
            await cluster.client_as("jane").list("v1/Secret")


async def test_always_deny_denies_all_but_masters() -> None:
    settings = Settings(auth=AuthSettings(authorization_modes=("AlwaysDeny",)), controllers=False, scheduler=False)
    async with running(settings) as cluster:
        await in_process_client(cluster.plane.local()).list("v1/Secret")
        with pytest.raises(errors.Forbidden):
            await in_process_client(cluster.plane.local(User("jane", ()))).get("v1/Secret", "a")


@pytest.mark.parametrize(
    ("modes", "message"), [(("ABAC",), "'ABAC' is unknown"), (("Webhook",), "--authorization-webhook-config-file")]
)
async def test_a_mode_that_cannot_work_is_refused(modes: tuple[str, ...], message: str) -> None:
    with pytest.raises(AuthorizationModeError, match=message):
        await build(Settings(auth=AuthSettings(authorization_modes=modes)), MemoryStore())


async def test_a_disabled_plugin_lets_pass_what_it_would_refuse() -> None:
    spec = {"containers": [{"name": "a", "image": "a"}], "priorityClassName": "unknown"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    async with running_cluster(settings=Settings()) as cluster:
        with pytest.raises(errors.Forbidden):
            await cluster.client.create(pod)
    settings = Settings(admission=AdmissionSettings(disabled=frozenset(("Priority",))))
    async with running_cluster(settings=settings) as cluster:
        await cluster.client.create(pod)


async def test_an_unknown_plugin_is_refused() -> None:
    settings = Settings(admission=AdmissionSettings(enabled=frozenset(("Nonsense",))))
    with pytest.raises(
        AdmissionPluginError, match='enable-admission-plugins plugin "Nonsense" is unknown; expected AlwaysAdmit'
    ):
        await build(settings, MemoryStore())


async def test_the_service_range_is_configurable(tmp_path: Path) -> None:
    async with running(Settings(service_ranges=("10.3.0.0/24",), controllers=False, scheduler=False)) as cluster:
        client = in_process_client(cluster.plane.local())
        assert (await client.get("v1/Service", "kubernetes"))["spec"]["clusterIP"] == "10.3.0.1"
        spec = {"ports": [{"port": 80}]}
        web = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
        made = await client.create(web)
        assert made["spec"]["clusterIP"].startswith("10.3.0.")


async def test_two_servers_share_a_store() -> None:
    settings, store = Settings(controllers=False, scheduler=False), MemoryStore()
    async with running(settings, store=store) as first, running(settings, store=store) as second:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        await in_process_client(first.plane.local()).create(made)
        assert await in_process_client(second.plane.local()).get("v1/ConfigMap", "a")


def test_half_a_serving_pair_is_refused(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path)
    with pytest.raises(CertificateError, match="give both"):
        use_key_files(files, KeyFiles(certificate=files.server.certificate), tmp_path)


async def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path)
    given = KeyFiles(certificate=files.server.certificate, key=files.admin.key)
    with pytest.raises(CertificateError, match="are not a certificate and its private key"):
        async with running(Settings(key_files=given)):
            pass
