"""Bundles of the Operator Lifecycle Manager hold what its validators demand, and start their operator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.sdk.recipes import kitchen
from tests.sdk.websites import Website
from typer.testing import CliRunner

from pinnace.cli.command_table import app
from pinnace.sdk import Context, CustomResource, Model, Operator
from pinnace.sdk.installation.manifests import DeploymentOptions, definitions, workload
from pinnace.sdk.installation.olm import bundle
from pinnace.testing.cluster import Cluster

FILE = '''
from pinnace.sdk import Context, CustomResource, Model, Operator

class Spec(Model):
    size: int = 1

class OldBox(CustomResource[Spec, None], group="example.com", version="v1", kind="Box", storage=False): ...
class Box(CustomResource[Spec, None], group="example.com", version="v2"):
    """A box."""

operator = Operator("boxes")

@operator.convert(OldBox, Box)
def up(old: OldBox) -> Box:
    return Box(metadata=old.metadata, spec=old.spec)

@operator.convert(Box, OldBox)
def down(new: Box) -> OldBox:
    return OldBox(metadata=new.metadata, spec=new.spec)

@operator.validate(Box)
async def check(box: Box) -> str | None: ...

@operator.reconcile(Box, owns=["v1/ConfigMap"])
async def reconcile(box: Box, ctx: Context) -> None: ...
'''
PLACE = DeploymentOptions(namespace="default", image="example.com/boxes:1", file="boxes.py")
BUNDLED = (
    *("ClusterServiceVersion", "CustomResourceDefinition", "ConfigMap", "Secret", "Service", "Role", "RoleBinding"),
    *("ClusterRole", "ClusterRoleBinding", "PodDisruptionBudget", "PriorityClass", "PrometheusRule", "ServiceMonitor"),
)
"""The kinds that OLM installs from a bundle."""


def read_bundle(out: Path) -> dict[str, Any]:
    objects = [yaml.safe_load(path.read_text()) for path in sorted((out / "manifests").iterdir())]
    assert {obj["kind"] for obj in objects} <= set(BUNDLED)
    return {f"{obj['kind']} {obj['metadata']['name']}": obj for obj in objects}


def test_a_bundle_holds_what_the_validators_demand(tmp_path: Path) -> None:
    (tmp_path / "boxes.py").write_text(FILE)
    out = tmp_path / "bundle"
    arguments = ["manifests", str(tmp_path / "boxes.py"), "--out", str(out), "--format", "olm", "--version", "1.2.0"]
    result = CliRunner().invoke(app, [*arguments, "--image", "example.com/boxes:1"])
    assert result.exit_code == 0, result.output
    objects = read_bundle(out)
    assert objects.keys() == {
        *("ClusterServiceVersion boxes.v1.2.0", "CustomResourceDefinition boxes.example.com", "Service boxes"),
    }
    service_version = objects["ClusterServiceVersion boxes.v1.2.0"]
    spec = service_version["spec"]
    assert service_version["apiVersion"] == "operators.coreos.com/v1alpha1"
    assert re.fullmatch(r"\d+\.\d+\.\d+", spec["version"]) and re.fullmatch(r"\d+\.\d+\.\d+", spec["minKubeVersion"])
    for field in ("displayName", "description", "provider", "install", "installModes"):
        assert spec[field], field
    modes = {mode["type"]: mode["supported"] for mode in spec["installModes"]}
    assert modes.keys() == {"OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"} and any(
        modes.values()
    )
    definition = objects["CustomResourceDefinition boxes.example.com"]
    served = {(definition["metadata"]["name"], version["name"]) for version in definition["spec"]["versions"]}
    assert {(owned["name"], owned["version"]) for owned in spec["customresourcedefinitions"]["owned"]} == served
    assert "conversion" not in definition["spec"]
    (example,) = json.loads(service_version["metadata"]["annotations"]["alm-examples"])
    assert (example["apiVersion"], example["kind"], example["spec"]) == ("example.com/v2", "Box", {"size": 1})
    labels = yaml.safe_load((out / "metadata" / "annotations.yaml").read_text())["annotations"]
    assert labels["operators.operatorframework.io.bundle.package.v1"] == "boxes"
    dockerfile = (out / "bundle.Dockerfile").read_text()
    assert all(f"LABEL {name}={value}\n" in dockerfile for name, value in labels.items())


def test_the_deployment_of_a_bundle_learns_its_namespace_and_may_register_its_webhooks() -> None:
    operator = Operator("guard")

    @operator.validate(Website)
    async def check(site: Website) -> None: ...

    declared = operator.declarations
    files = {"crds.yaml": definitions(declared, PLACE), "deployment.yaml": workload(declared, PLACE)}
    packed = bundle(declared, files, PLACE, "1.0.0")
    install = packed["manifests/guard.clusterserviceversion.yaml"]["spec"]["install"]["spec"]
    (container,) = install["deployments"][0]["spec"]["template"]["spec"]["containers"]
    assert "--webhook-service=$(POD_NAMESPACE)/guard" in container["command"]
    assert container["env"] == [
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    ]
    rules = install["clusterPermissions"][0]["rules"]
    creating = [rule for rule in rules if rule["resources"] == ["validatingwebhookconfigurations"]]
    assert {"create", "get", "patch"} <= {verb for rule in creating for verb in rule["verbs"]}
    assert "namespace" not in packed["manifests/guard.service.yaml"]["metadata"]


async def test_the_objects_of_a_bundle_are_valid(cluster: Cluster) -> None:
    class Spec(Model):
        size: int = 1

    class Crate(CustomResource[Spec, None], group="example.com", version="v1"):
        """A crate."""

    operator = Operator("crates")

    @operator.reconcile(Crate)
    async def reconcile(crate: Crate, ctx: Context) -> None: ...

    declared = operator.declarations
    files = {"crds.yaml": definitions(declared, PLACE), "deployment.yaml": workload(declared, PLACE)}
    packed = bundle(declared, files, PLACE, "1.0.0")
    await cluster.client.create(packed["manifests/crates.example.com.yaml"])
    service_version = packed["manifests/crates.clusterserviceversion.yaml"]
    (deployment,) = service_version["spec"]["install"]["spec"]["deployments"]
    metadata = {"name": deployment["name"]}
    await cluster.client.create({**deployment, "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})
    (example,) = json.loads(service_version["metadata"]["annotations"]["alm-examples"])
    assert (await cluster.client.create(example))["spec"] == {"size": 1}


@pytest.mark.parametrize(
    ("operator", "version", "message"),
    [
        (Operator("boxes"), "1.2", "OLM compares versions; write MAJOR.MINOR.PATCH"),
        (Operator("boxes", namespace=["one"]), "1.2.0", "boxes names the namespaces that it watches"),
        (kitchen(), "1.2.0", "kitchen serves an API"),
    ],
    ids=["version", "namespaces", "API"],
)
def test_an_operator_that_olm_cannot_install_is_refused(operator: Operator, version: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bundle(operator.declarations, {"deployment.yaml": workload(operator.declarations, PLACE)}, PLACE, version)
