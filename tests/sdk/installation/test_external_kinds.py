"""Kinds that another operator owns: a test cluster does not have them, and the test still runs."""

from __future__ import annotations

import logging

import pytest

from pinnace.model import errors
from pinnace.sdk import Context, CustomResource, Memory, Model, Operator
from pinnace.sdk.installation.installation import DEFINITION
from pinnace.testing.cluster import Cluster

NAME = "certificates.certs.example.com"
OLD = "certs.example.com/v1beta1/Certificate"


class CertificateSpec(Model):
    host: str
    days: int = 90


class CertificateStatus(Model):
    serial: str = ""


class Certificate(
    CustomResource[CertificateSpec, CertificateStatus], group="certs.example.com", version="v1", external=True
):
    """As `pinnace models` writes it."""


class OldCertificate(
    CustomResource[CertificateSpec, CertificateStatus],
    group="certs.example.com",
    version="v1beta1",
    kind="Certificate",
    external=True,
    storage=False,
):
    """In a version that its owner stores no longer."""


class Gateway(CustomResource[CertificateSpec, None], group="gateway.networking.k8s.io", version="v1", external=True):
    """Of a group that only Kubernetes' own projects may use."""


def certificate(api_version: str = "certs.example.com/v1") -> dict[str, object]:
    return {"apiVersion": api_version, "kind": "Certificate", "metadata": {"name": "web"}, "spec": {"host": "h"}}


async def test_an_operator_for_the_kind_of_another_works_in_a_test(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    operator = Operator("signer")

    @operator.reconcile(Certificate)
    async def sign(certificate: Certificate, ctx: Context) -> None:
        certificate.status.serial = f"{certificate.spec.host}-{certificate.spec.days}"

    await cluster.run(operator)
    assert (
        f"{NAME} is an external kind that is not installed in this cluster; created its CRD from the class"
        in caplog.text
    )
    await cluster.client.create(certificate())
    await cluster.settle()
    assert (await cluster.client.get(Certificate, "web")).status.serial == "h-90"
    with pytest.raises(errors.Invalid, match=r"spec\.host"):
        await cluster.client.create({**certificate(), "metadata": {"name": "bad"}, "spec": {"host": 5}})


async def test_an_installed_definition_is_left_unchanged(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    theirs = Certificate.crd()
    theirs["spec"]["names"]["shortNames"] = ["cert"]
    await cluster.client.create(theirs)
    before = await cluster.client.get(DEFINITION, NAME)
    await cluster.run(Operator("signer", kinds=[Certificate, OldCertificate]))
    after = await cluster.client.get(DEFINITION, NAME)
    assert (after["spec"], after["metadata"]["uid"]) == (before["spec"], before["metadata"]["uid"])
    assert "external kind" not in caplog.text


async def test_one_that_an_api_server_serves_gets_no_definition(cluster: Cluster) -> None:
    owner = Operator("certs")
    owner.serves(Certificate, Memory())
    await cluster.run(owner)
    await cluster.run(Operator("signer", kinds=[Certificate]))
    assert await cluster.client.get_or_none(DEFINITION, NAME) is None


async def test_two_operators_may_need_the_same(cluster: Cluster) -> None:
    await cluster.run(Operator("signer", kinds=[Certificate]))
    await cluster.run(Operator("reader", kinds=[Certificate]))
    assert await cluster.client.list(Certificate) == []


async def test_the_version_that_is_stored_need_not_have_a_class(cluster: Cluster) -> None:
    await cluster.run(Operator("signer", kinds=[OldCertificate]))
    await cluster.client.create(certificate("certs.example.com/v1beta1"))
    assert (await cluster.client.get(OLD, "web"))["spec"]["days"] == 90


async def test_all_versions_with_a_class_are_served(cluster: Cluster) -> None:
    await cluster.run(Operator("signer", kinds=[OldCertificate, Certificate]))
    await cluster.client.create(certificate("certs.example.com/v1beta1"))
    assert (await cluster.client.get(Certificate, "web")).spec.host == "h"
    definition = await cluster.client.get(DEFINITION, NAME)
    assert [version["name"] for version in definition["spec"]["versions"] if version["storage"]] == ["v1"]


async def test_groups_of_kubernetes_need_no_approval_there(cluster: Cluster) -> None:
    await cluster.run(Operator("router", kinds=[Gateway]))
    assert await cluster.client.list(Gateway) == []


async def test_kinds_that_handlers_need_are_installed_too(cluster: Cluster) -> None:
    operator = Operator("router")
    operator.needs(Certificate, "create")
    await cluster.run(operator, client=cluster.client_as("robot"))  # A user that may install nothing.
    assert await cluster.client.list(Certificate) == []


async def test_nowhere_else_is_it_installed(cluster: Cluster) -> None:
    operator = Operator("signer", kinds=[Certificate])
    async with operator.running(cluster.client):  # As against any cluster.
        assert await cluster.client.get_or_none(DEFINITION, NAME) is None
    await cluster.run(operator, install=False)
    assert await cluster.client.get_or_none(DEFINITION, NAME) is None
    assert operator.crds() == []
