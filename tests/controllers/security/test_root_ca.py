"""Every namespace has a ConfigMap with the cluster's CA."""

from __future__ import annotations

import pytest
from tests.controllers.world import World

from pinnace.auth.certificates.authority import CertificateFiles

KIND = "v1/ConfigMap"
NAME = "kube-root-ca.crt"


async def test_every_namespace_has_the_ca(world: World, files: CertificateFiles) -> None:
    await world.namespace("shop")
    await world.settle()
    for namespace in ("default", "kube-system", "shop"):
        published = await world.client.get(KIND, NAME, namespace=namespace)
        assert published["data"] == {"ca.crt": files.ca.certificate.read_text()}
        assert published["metadata"]["annotations"]["kubernetes.io/description"]


@pytest.mark.parametrize(
    "patch",
    [{"data": {"ca.crt": "mine"}}, {"data": None}, {"data": {"more": "of it"}}, {"metadata": {"annotations": None}}],
    ids=["changed", "emptied", "added to", "not described"],
)
async def test_a_changed_config_map_is_corrected(world: World, patch: dict[str, object]) -> None:
    before = await world.client.get(KIND, NAME, namespace="default")
    await world.client.patch(KIND, NAME, patch, namespace="default")
    await world.settle()
    after = await world.client.get(KIND, NAME, namespace="default")
    assert after["data"] == before["data"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


async def test_a_deleted_config_map_comes_back(world: World) -> None:
    await world.client.delete(KIND, NAME, namespace="default")
    await world.settle()
    assert await world.client.get_or_none(KIND, NAME, namespace="default") is not None
