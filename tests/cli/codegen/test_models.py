"""pinnace models: classes whose CRD means what the CRD meant that they were made from."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.clients.server_process import ServerProcess
from typer.testing import CliRunner

from pinnace.cli.command_table import app
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.sdk import Operator
from pinnace.sdk.resources.custom_resource import definition_of, is_resource_class
from pinnace.testing.cluster import Cluster
from pinnace.testing.plugin import cluster

__all__ = ["cluster"]

CRDS = Path(__file__).parent / "crds"
NOTES = sorted((Path(__file__).parents[2] / "clients" / "notes").rglob("*.yaml"))


def module_from(source: str, path: Path) -> ModuleType:
    """The module of a source, imported as its users import it."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def written(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["models", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def definitions_in(path: Path) -> list[Object]:
    return [obj for obj in yaml.safe_load_all(path.read_text()) if obj and obj["kind"] == "CustomResourceDefinition"]


def made_again(module: ModuleType, definition: Object) -> Object:
    """The CRD that the classes of a kind make of themselves."""
    resources = [value for value in vars(module).values() if is_resource_class(value)]
    return definition_of(
        *(resource for resource in resources if resource.declared.crd_name == definition["metadata"]["name"])
    )


def meaning(schema: Any, *, is_status: bool = False) -> Any:
    """A schema without what makes no difference: line breaks in texts, what follows from defaults."""
    if isinstance(schema, list):
        return [meaning(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    message = {name: value for name, value in schema.items() if value is not False or name != "nullable"}
    if "description" in message:
        message["description"] = re.sub(r"\s+", " ", message["description"]).strip()
    properties = message.get("properties") or {}
    required = {name for name in message.get("required") or () if "default" not in (properties.get(name) or {})}
    message.pop("required", None)
    if required and not is_status:
        message["required"] = sorted(required)
    if message.get("x-kubernetes-int-or-string"):
        message.pop("anyOf", None)
    if message.get("type") == "object" and message.pop("additionalProperties", None) is True:
        message["x-kubernetes-preserve-unknown-fields"] = True
    elif "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
        message["additionalProperties"] = meaning(schema["additionalProperties"])
    if properties:
        message["properties"] = {name: meaning(inner) for name, inner in properties.items()}
    if not message or set(message) == {"description"}:
        message["x-kubernetes-preserve-unknown-fields"] = True
    if "items" in message:
        message["items"] = meaning(message["items"])
    if "enum" in message:
        message.pop("nullable", None)
    return message


def root_meaning(version: Object) -> Any:
    schema = dict(version["schema"]["openAPIV3Schema"])
    of_all = ("apiVersion", "kind", "metadata")
    properties = {name: value for name, value in schema["properties"].items() if name not in of_all}
    result = meaning({**schema, "properties": {}})
    parts = {name: meaning(value, is_status=name == "status") for name, value in properties.items()}
    return {**result, "properties": parts}


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_classes_of_a_definition_mean_what_it_means(path: Path, tmp_path: Path) -> None:
    module = module_from(written(str(path)), tmp_path / f"kinds_{path.stem}.py")
    for definition in definitions_in(path):
        again = made_again(module, definition)
        assert again["spec"]["names"] == definition["spec"]["names"]
        assert again["spec"]["scope"] == definition["spec"]["scope"]
        for old, new in zip(definition["spec"]["versions"], again["spec"]["versions"], strict=True):
            assert root_meaning(new) == root_meaning(old)
            for part in ("name", "served", "storage", "deprecated", "deprecationWarning", "selectableFields"):
                assert new.get(part) == old.get(part)
            assert (new.get("subresources") or {}).get("scale") == (old.get("subresources") or {}).get("scale")
            assert new.get("additionalPrinterColumns") == old.get("additionalPrinterColumns")


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_module_is_formatted_and_clean(path: Path, tmp_path: Path) -> None:
    ruff = shutil.which("ruff") or str(Path(sys.executable).parent / "ruff")
    module = tmp_path / "kinds.py"
    module.write_text(written(str(path)))
    options = ["--no-cache", "--isolated", "--line-length", "120", str(module)]
    ran = subprocess.run([ruff, "format", "--diff", *options], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    ran = subprocess.run([ruff, "check", "--select", "E,F,I,UP,B", *options], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


async def test_the_server_takes_what_the_classes_make_and_the_objects_they_read(
    cluster: Cluster, tmp_path: Path
) -> None:
    module = module_from(written(str(CRDS / "certificates.yaml")), tmp_path / "kinds_for_server.py")
    await cluster.client.create(made_again(module, definitions_in(CRDS / "certificates.yaml")[0]))
    certificate = module.CertificateV1(
        metadata={"name": "web", "namespace": "default"},
        spec={"secretName": "web-tls", "issuerRef": {"name": "ca"}, "dnsNames": ["example.com"]},
    )
    await cluster.settle()
    stored = await cluster.client.create(certificate.to_wire())
    read = module.CertificateV1.of(stored)
    assert (read.spec.private_key.algorithm, read.spec.private_key.size) == ("RSA", 2048)
    assert read.spec.usages == ["signing"]
    assert read.spec.issuer_ref.kind == "Issuer"
    assert read.spec.is_ca is False


@pytest.mark.parametrize(
    "path", [path for path in NOTES if "CustomResourceDefinition" in path.read_text()], ids=lambda path: path.stem
)
def test_every_definition_of_the_notes_becomes_classes(path: Path, tmp_path: Path) -> None:
    module = module_from(written(str(path)), tmp_path / f"notes_{path.stem.replace('-', '_')}.py")
    assert any(is_resource_class(value) for value in vars(module).values())


def test_names_that_are_taken_are_changed_and_found_on_the_wire(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pydantic warns of names that it keeps for itself.
        module = module_from(written(str(CRDS / "oddities.yaml")), tmp_path / "kinds_odd.py")
    wire = {"$ref": "r", "class": "a", "from": ["x"], "fooBar": "1", "foo_bar": "2", "FooBar": "3", "schema": {"a": 1}}
    read = module.OddModel.of({"metadata": {"name": "x"}, "spec": wire})
    assert read.to_wire()["spec"] == {**wire, "replicas": 1}
    assert (read.spec.from_, read.spec.foo_bar) == (["x"], "2")


async def test_fields_beside_spec_and_status_are_fields_of_the_class(cluster: Cluster, tmp_path: Path) -> None:
    module = module_from(written(str(CRDS / "oddities.yaml")), tmp_path / "kinds_beside.py")
    definition = module.SnapshotClass.crd()
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved"}
    await cluster.client.create(definition)
    await cluster.settle()
    fast = module.SnapshotClass(metadata={"name": "fast"}, driver="disks", deletion_policy="Delete", of_={"one": 1})
    stored = await cluster.client.create(fast.to_wire())
    assert (stored["driver"], stored["deletionPolicy"], stored["of"]) == ("disks", "Delete", {"one": 1})
    read = module.SnapshotClass.of(stored)
    assert (read.name, read.driver, read.of_.one) == ("fast", "disks", 1)
    with pytest.raises(errors.Invalid, match="deletionPolicy"):
        await cluster.client.create({**stored, "metadata": {"name": "odd"}, "deletionPolicy": "Keep"})


def test_an_operator_that_uses_the_kinds_of_others_does_not_install_them(tmp_path: Path) -> None:
    module = module_from(written(str(CRDS / "certificates.yaml")), tmp_path / "kinds_of_others.py")
    operator = Operator("user")
    operator.reconcile("v1/ConfigMap", owns=[module.CertificateV1])(lambda obj, ctx: None)
    assert operator.crds() == []
    assert ("trust.example.com", "certificates") in {
        (permission.group, permission.resource) for permission in operator.permissions()
    }


def test_a_file_without_a_definition_says_so(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("{apiVersion: v1, kind: Pod, metadata: {name: x}}")
    result = CliRunner().invoke(app, ["models", str(path)])
    assert result.exit_code == 1
    assert "there is no CustomResourceDefinition in" in result.output


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The way to a server that knows the definitions of a file."""
    process = ServerProcess.start(tmp_path_factory.mktemp("server"), "--ephemeral", "--no-controllers")
    try:
        kubeconfig = process.await_kubeconfig()
        result = CliRunner().invoke(app, ["apply", "-f", str(CRDS / "monitors.yaml"), "--kubeconfig", str(kubeconfig)])
        assert result.exit_code == 0, result.output
        yield kubeconfig
    finally:
        process.stop()


def test_a_definition_in_a_cluster_becomes_the_same_classes_as_its_file(server: Path, tmp_path: Path) -> None:
    names = [definition["metadata"]["name"] for definition in definitions_in(CRDS / "monitors.yaml")]
    ours = written(*names, "--kubeconfig", str(server))
    assert ours == written(str(CRDS / "monitors.yaml"))
    out = tmp_path / "kinds.py"
    assert written(*names, "-o", str(out), "--kubeconfig", str(server)) == f"{out}: the classes of {', '.join(names)}\n"
    assert out.read_text() == ours


def test_files_and_names_may_be_mixed(server: Path) -> None:
    both = written(str(CRDS / "certificates.yaml"), "monitors.watching.example.com", "--kubeconfig", str(server))
    assert "class CertificateV1(" in both
    assert "class Monitor(" in both


@pytest.mark.parametrize("name", ["nopes.example.com", "monitors"])
def test_a_definition_that_the_cluster_has_not_got_is_reported(name: str, server: Path) -> None:
    result = CliRunner().invoke(app, ["models", name, "--kubeconfig", str(server)])
    assert result.exit_code == 1
    assert f'customresourcedefinitions.apiextensions.k8s.io "{name}" not found' in result.stderr
