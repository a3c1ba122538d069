"""Controllers, a mutating webhook and an aggregated API server of the examples, each as a pod behind its Service."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.model import errors
from pinnace.model.objects import Object

_ROOT = Path(__file__).parents[2]
_EXAMPLES = _ROOT / "examples"


def _manifests(example: str) -> list[Object]:
    """Return the output of `pinnace manifests` with this machine as the image: the file and Python are mounted."""
    command = [sys.executable, "-m", "pinnace.cli.main", "manifests", str(_EXAMPLES / example)]
    printed = subprocess.run(command, capture_output=True, check=True, env={"PYTHONPATH": str(_ROOT / "src")}).stdout
    objects = [document for document in yaml.safe_load_all(printed) if document]
    (deployment,) = [obj for obj in objects if obj["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    places = {"project": str(_ROOT), "python": sys.prefix}
    spec["volumes"] = [{"name": name, "hostPath": {"path": path}} for name, path in places.items()]
    spec.pop("securityContext")  # An ordinary user has no second user id.
    container.pop("securityContext")
    container["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in places.items()]
    container["image"] = "host"
    container["env"] = [*container.get("env", []), {"name": "PYTHONPATH", "value": str(_ROOT / "src")}]
    program, _, _, *flags = container["command"]
    assert program == "pinnace-operator"
    container["command"] = [sys.executable, "-m", "pinnace.sdk.command.main", "run", str(_EXAMPLES / example), *flags]
    return objects


async def _deploy(pods: PodCluster, example: str) -> None:
    objects = _manifests(example)
    for obj in objects:
        await pods.client.apply(obj, force=True)
    (deployment,) = [obj for obj in objects if obj["kind"] == "Deployment"]

    async def is_available() -> bool:
        deployed = await pods.client.get("apps/v1/Deployment", deployment["metadata"]["name"], namespace="default")
        return bool(deployed["status"].get("availableReplicas"))

    await pods.until(is_available)


async def _website(pods: PodCluster, version: str) -> Object | None:
    site: Object = yaml.safe_load((_EXAMPLES / "01-website" / "kubia.yaml").read_text())
    try:
        return await pods.client.create({**site, "apiVersion": version})
    except errors.AlreadyExists:
        return site
    except errors.ApiError:
        return None  # Its server is not known yet.


@pytest.fixture(scope="module")
def _python_is_visible() -> None:
    if not Path(sys.prefix, "bin").exists():
        pytest.skip("the environment of this Python cannot be mounted into a pod")


async def test_a_controller_as_a_pod_makes_a_website(_python_is_visible: None) -> None:
    async with run_pod_cluster() as pods:
        await _deploy(pods, "01-website/website.py")

        async def is_accepted() -> bool:
            return await _website(pods, "extensions.example.com/v1") is not None

        await pods.until(is_accepted)  # The validating webhook of the same pod decides.

        async def is_made() -> bool:
            service = await pods.client.get_or_none("v1/Service", "kubia-website", namespace="default")
            return service is not None and bool(
                await pods.client.get_or_none("apps/v1/Deployment", "kubia-website", namespace="default")
            )

        await pods.until(is_made)
        await pods.client.delete("extensions.example.com/v1/Website", "kubia", namespace="default")

        async def is_gone() -> bool:
            return await pods.client.get_or_none("v1/Service", "kubia-website", namespace="default") is None

        await pods.until(is_gone)


def _fetch(place: str, host: str) -> str:
    request = urllib.request.Request(f"http://{place}/hostname", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        return str(error)


async def test_an_ingress_controller_as_a_pod_is_reached_on_loopback(_python_is_visible: None) -> None:
    async with run_pod_cluster() as pods:
        for file in ("service.yaml", "shop.yaml"):
            for document in yaml.safe_load_all((_EXAMPLES / "12-ingress" / file).read_text()):
                await pods.client.apply(document)
        await _deploy(pods, "12-ingress/ingress.py")

        async def address() -> str:
            ingress = await pods.client.get("networking.k8s.io/v1/Ingress", "shop", namespace="default")
            return "".join(point["ip"] for point in ingress["status"]["loadBalancer"].get("ingress") or ())

        async def has_address() -> bool:
            return (await address()).startswith("127.")

        await pods.until(has_address)
        service = await pods.client.get("v1/Service", "ingress", namespace="default")
        balancer = service["status"]["loadBalancer"]["ingress"][0]["ip"]
        assert await address() == balancer, "the status of the Ingress has the address of the controller's own Service"
        node_port = service["spec"]["ports"][0]["nodePort"]
        for place in (f"{balancer}:8080", f"127.0.0.1:{node_port}"):

            async def served(place: str = place) -> str:
                return await asyncio.to_thread(_fetch, place, "shop.example.com")

            await pods.until(served, "200")
            assert await asyncio.to_thread(_fetch, place, "other.example.com") == "404"


async def test_a_mutating_webhook_as_a_pod_labels_config_maps(_python_is_visible: None) -> None:
    async with run_pod_cluster() as pods:
        await _deploy(pods, "04-mutating-webhook/team_labels.py")

        async def team() -> str:
            metadata = {"generateName": "c-", "namespace": "default"}
            try:
                made = await pods.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            except errors.ApiError:
                return ""
            return str((made["metadata"].get("labels") or {}).get("team", ""))

        async def is_labelled() -> bool:
            return bool(await team())

        await pods.until(is_labelled)


async def test_an_aggregated_api_server_as_a_pod_serves_its_kind(_python_is_visible: None) -> None:
    async with run_pod_cluster() as pods:
        await _deploy(pods, "07-website-api/website_api.py")

        async def is_accepted() -> bool:
            return await _website(pods, "extensions.example.com/v1alpha1") is not None

        await pods.until(is_accepted)
        website = await pods.client.get("extensions.example.com/v1alpha1/Website", "kubia", namespace="default")
        assert website["spec"]["gitRepo"].startswith("https://")
        with pytest.raises(errors.ApiError, match="serve something real"):
            bad = {"gitRepo": "https://example.com/test.git"}
            metadata = {"name": "bad", "namespace": "default"}
            kind = {"apiVersion": "extensions.example.com/v1alpha1", "kind": "Website"}
            await pods.client.create({**kind, "metadata": metadata, "spec": bad})
