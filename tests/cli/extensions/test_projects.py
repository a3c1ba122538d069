"""Operators in packages: found by their module, configured by pyproject.toml, shipped in three forms."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.clients.kubectl_command import kubectl_binary
from typer.testing import CliRunner

import pinnace
from pinnace.cli.command_table import app
from pinnace.sdk import Operator
from pinnace.sdk.operator.logs import HANDLED, HandledObject, JsonFormatter
from pinnace.testing.cluster import Cluster

OPERATOR = """
from pinnace.sdk import Context, CustomResource, Field, Model, Operator
from {package}.sizes import SMALL

class ShopSpec(Model):
    size: int = SMALL

class Shop(CustomResource[ShopSpec, None], group="shop.example.com", version="v1"):
    pass

operator = Operator("shops"{options})
other = Operator("others")

@operator.reconcile(Shop, owns=["v1/Secret"])
async def reconcile(shop: Shop, ctx: Context) -> None: ...

@operator.timer("v1/Node", seconds=60)
async def look(node, ctx) -> None: ...
"""
SETTINGS = """
[project]
name = "shop"
version = "1"
dependencies = ["pinnace"]

[tool.pinnace]
namespace = "shops"
image = "example.com/shop:7"
replicas = 2
env = { LOG = "yes" }
args = ["--log-format=json"]
resources = { limits = { memory = "1Gi" } }
service-monitor = true
"""


def write_project(root: Path, package: str, *, options: str = "", settings: str = SETTINGS) -> Path:
    source = root / "src" / package
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")
    (source / "sizes.py").write_text("SMALL = 3\n")
    (source / "operators.py").write_text(OPERATOR.format(package=package, options=options))
    (root / "pyproject.toml").write_text(settings)
    return root


def manifests(root: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return CliRunner().invoke(app, ["manifests", *arguments])


def test_a_module_of_a_src_layout_keeps_its_name_and_takes_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path, "shop_a")
    result = manifests(root, monkeypatch, "-m", "shop_a.operators:operator")
    assert result.exit_code == 0, result.output
    by_name = {(obj["kind"], obj["metadata"]["name"]): obj for obj in yaml.safe_load_all(result.stdout)}
    deployment = by_name["Deployment", "shops"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][:4] == ["pinnace-operator", "run", "-m", "shop_a.operators:operator"]
    assert "--log-format=json" in container["command"]
    assert container["env"] == [{"name": "LOG", "value": "yes"}]
    assert container["resources"] == {"limits": {"memory": "1Gi"}}
    assert (deployment["spec"]["replicas"], container["image"]) == (2, "example.com/shop:7")
    assert deployment["metadata"]["namespace"] == "shops"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert ("ServiceMonitor", "shops-metrics") in by_name


def test_an_operator_of_some_namespaces_gets_roles_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_project(tmp_path, "shop_b", options=', namespace=["one", "two"]')
    result = manifests(root, monkeypatch, "-m", "shop_b.operators:operator")
    assert result.exit_code == 0, result.output
    actual = list(yaml.safe_load_all(result.stdout))
    roles = {(obj["kind"], obj["metadata"].get("namespace")): obj for obj in actual if obj["kind"].endswith("Role")}
    assert roles.keys() == {("Role", "one"), ("Role", "two"), ("Role", "shops"), ("ClusterRole", None)}
    allowed = {resource for rule in roles["ClusterRole", None]["rules"] for resource in rule["resources"]}
    assert allowed == {"nodes"}
    within = {resource for rule in roles["Role", "one"]["rules"] for resource in rule["resources"]}
    assert {"shops", "secrets"} <= within
    assert "nodes" not in within


@pytest.mark.parametrize("form", ["yaml", "kustomize", "helm"])
def test_manifests_have_three_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    root = write_project(tmp_path, f"shop_{form}")
    out = root / "deploy"
    result = manifests(root, monkeypatch, "-m", f"shop_{form}.operators:operator", "--out", str(out), "--format", form)
    assert result.exit_code == 0, result.output
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert {
        "yaml": {"Dockerfile", "crds.yaml", "deployment.yaml", "monitoring/service-monitor.yaml", "rbac.yaml"},
        "kustomize": {
            *("Dockerfile", "crds.yaml", "deployment.yaml", "kustomization.yaml", "rbac.yaml"),
            "monitoring/service-monitor.yaml",
        },
        "helm": {
            *("Chart.yaml", "Dockerfile", "crds/crds.yaml", "values.yaml"),
            *("templates/deployment.yaml", "templates/rbac.yaml", "templates/service-monitor.yaml"),
        },
    }[form] == written
    dockerfile = (out / "Dockerfile").read_text()
    assert "RUN pip install --no-cache-dir ." in dockerfile
    assert "USER 65532" in dockerfile
    if form == "helm":
        text = (out / "templates" / "deployment.yaml").read_text()
        assert "replicas: {{ .Values.replicas }}" in text
        assert "resources: {{ toJson .Values.resources }}" in text
        assert yaml.safe_load((out / "values.yaml").read_text())["serviceMonitor"] == {"enabled": True}
        assert "{{ .Release.Namespace }}" in text
        assert yaml.safe_load((out / "values.yaml").read_text())["image"] == "example.com/shop:7"
    if form == "kustomize":
        actual = yaml.safe_load((out / "kustomization.yaml").read_text())
        assert actual["resources"] == ["crds.yaml", "rbac.yaml", "deployment.yaml"]
        assert actual["images"] == [{"name": "example.com/shop", "newTag": "7"}]


def render(text: str, values: dict[str, Any], *, served: bool = True) -> list[Any]:
    """Render a template of ours, which uses few of Helm's expressions, and return its objects."""
    condition = re.match(r"\{\{- if and (\S+) \(.*\) \}\}\n(.*)\{\{- end \}\}\n", text, re.DOTALL)
    if condition is not None:
        text = condition[2] if served and look_up(values, condition[1]) else ""
    text = re.sub(r"\{\{ toJson (\S+) \}\}", lambda match: json.dumps(look_up(values, match[1])), text)
    text = re.sub(r"\{\{ (\.\S+) \}\}", lambda match: str(look_up(values, match[1])), text).replace("{{`{{`}}", "{{")
    assert "Values" not in text
    return list(yaml.safe_load_all(text))


def look_up(values: dict[str, Any], path: str) -> Any:
    whole: Any = {"Values": values, "Release": {"Namespace": "elsewhere"}}
    for name in path[1:].split("."):
        whole = whole[name]
    return whole


CONVERTING = """
from pinnace.sdk import Context, CustomResource, Model, Operator

class Spec(Model):
    text: str = "{{ kept }}"

class OldNote(CustomResource[Spec, None], group="example.com", version="v1", kind="Note", storage=False): ...
class Note(CustomResource[Spec, None], group="example.com", version="v2"): ...
class Pad(CustomResource[Spec, None], group="example.com", version="v1"): ...

operator = Operator("notes")

@operator.convert(OldNote, Note)
def up(old: OldNote) -> Note:
    return Note(metadata=old.metadata, spec=old.spec)

@operator.convert(Note, OldNote)
def down(new: Note) -> OldNote:
    return OldNote(metadata=new.metadata, spec=new.spec)

@operator.reconcile(Pad)
async def reconcile(pad: Pad, ctx: Context) -> None: ...
"""


def test_the_values_of_a_chart_reach_its_pods_and_its_namespace_its_definitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.py").write_text(CONVERTING)
    out = tmp_path / "chart"
    result = manifests(tmp_path, monkeypatch, "notes.py", "--out", str(out), "--format", "helm")
    assert result.exit_code == 0, result.output
    values = yaml.safe_load((out / "values.yaml").read_text())
    values |= {
        "env": [{"name": "LOG", "value": "yes"}],
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "podAnnotations": {"a": "b"},
        "serviceAccount": {"annotations": {"role": "arn"}},
        "replicas": 3,
    }
    texts = {path.name: path.read_text() for path in (out / "templates").iterdir()}
    (account,) = [obj for obj in render(texts["rbac.yaml"], values) if obj["kind"] == "ServiceAccount"]
    assert account["metadata"]["annotations"] == {"role": "arn"}
    (deployment,) = [obj for obj in render(texts["deployment.yaml"], values) if obj["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]
    assert (deployment["spec"]["replicas"], pod["metadata"]["annotations"]) == (3, {"a": "b"})
    assert pod["spec"]["containers"][0]["env"] == values["env"]
    assert [pod["spec"][name] for name in ("tolerations", "imagePullSecrets", "affinity", "nodeSelector")] == [
        *(values["tolerations"], values["imagePullSecrets"], {}, {})
    ]
    (converted,) = render(texts["crds.yaml"], values)
    assert converted["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"] == "elsewhere"
    assert converted["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    schema = converted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert schema["properties"]["text"]["default"] == "{{ kept }}"
    (plain,) = yaml.safe_load_all((out / "crds" / "crds.yaml").read_text())
    assert plain["spec"]["names"]["kind"] == "Pad"
    for enabled, served, count in ((True, True, 2), (True, False, 0), (False, True, 0)):
        values["serviceMonitor"] = {"enabled": enabled}
        assert len(render(texts["service-monitor.yaml"], values, served=served)) == count


def test_roles_for_named_namespaces_stay_there_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_project(tmp_path, "shop_malls", options=', namespace=["shops", "malls"]')
    module = ("-m", "shop_malls.operators:operator")
    for form in ("kustomize", "helm"):
        result = manifests(root, monkeypatch, *module, "--out", str(root / form), "--format", form)
        assert result.exit_code == 0, result.output
    built = subprocess.run([kubectl_binary(), "kustomize", root / "kustomize"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    expected = {("shops-objects", "shops"), ("shops-objects", "malls"), ("shops", "shops")}
    assert role_places(built.stdout) == expected
    template = (root / "helm" / "templates" / "rbac.yaml").read_text()
    values = yaml.safe_load((root / "helm" / "values.yaml").read_text())
    assert role_places(yaml.safe_dump_all(render(template, values))) == {
        *(("shops-objects", "shops"), ("shops-objects", "malls"), ("shops", "elsewhere"))
    }


def role_places(documents: str) -> set[tuple[str, str]]:
    """Return the name and the namespace of each Role."""
    result = [obj["metadata"] for obj in yaml.safe_load_all(documents) if obj["kind"] == "Role"]
    return {(metadata["name"], metadata["namespace"]) for metadata in result}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[tool.pinnace]\nreplica = 2\n", "[tool.pinnace] has no setting replica; did you mean replicas?"),
        ('[tool.pinnace]\nreplicas = "2"\n', "[tool.pinnace] replicas = '2': write a int"),
    ],
    ids=["name", "type"],
)
def test_a_wrong_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, message: str) -> None:
    package = f"shop_{'name' if 'replica =' in settings else 'type'}"
    result = manifests(
        write_project(tmp_path, package, settings=settings), monkeypatch, "-m", f"{package}.operators:other"
    )
    assert result.exit_code == 1
    assert message in result.output


def test_a_file_keeps_the_name_of_its_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two.py").write_text("from pinnace.sdk import Operator\na = Operator('a')\nb = Operator('b')\n")
    result = manifests(tmp_path, monkeypatch, "two.py:b")
    assert result.exit_code == 0, result.output
    (deployment,) = [obj for obj in yaml.safe_load_all(result.stdout) if obj["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == ["pinnace-operator", "run", "two.py:b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "-m", "no_such_package.module"], "there is no module no_such_package.module"),
        (["run"], "name the file of the operator, as in website.py, or its module"),
        (["run", "two.py", "--log-format", "xml"], "there is no log format xml: choose text or json"),
        (["run", "two.py", "--log-level", "loud"], "there is no log level loud: choose from debug"),
    ],
    ids=["module", "nothing", "log format", "log level"],
)
def test_wrong_arguments_of_run_are_explained(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert message in result.output


def test_a_cluster_elsewhere_is_named_and_not_changed_without_consent(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("from pinnace.sdk import Operator\noperator = Operator('one')\n")
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "prod",
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "me"}}],
        "clusters": [{"name": "prod", "cluster": {"server": "https://prod.invalid:6443"}}],
        "users": [{"name": "me", "user": {"token": "x"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "pinnace.cli.main", "run", "one.py", "--kubeconfig", "kubeconfig"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert ran.returncode == 1
    assert "one would install its kinds and webhooks in the cluster at https://prod.invalid:6443" in ran.stderr
    assert "--yes" in ran.stderr


def test_a_json_record_has_the_object_and_the_handler() -> None:
    token = HANDLED.set(HandledObject("default/blog", "reconcile"))
    try:
        record = logging.makeLogRecord(
            {"name": "shop", "levelname": "INFO", "msg": "made %s", "args": ("it",), "tier": 1}
        )
        line = json.loads(JsonFormatter().format(record))
    finally:
        HANDLED.reset(token)
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "shop",
        "message": "made it",
        "object": "default/blog",
        "handler": "reconcile",
        "tier": 1,
    }


async def test_the_lines_about_a_failed_reconcile_name_the_object_and_the_handler(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator("shop", namespace="default")

    @operator.reconcile("v1/ConfigMap", retries=0)
    async def count_the_till(value: dict[str, Any]) -> None:
        raise RuntimeError("the till is empty")

    await cluster.run(operator)
    await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "till"}})
    await cluster.settle()
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    (failed,) = [line for line in lines if "the till is empty" in line["message"]]
    about = [failed[field] for field in ("object", "controller", "handler")]
    assert about == ["default/till", "shop-configmap", "count_the_till"]


@pytest.mark.parametrize("words", [["--version"], ["version"]], ids=["flag", "command"])
def test_the_version_is_printed(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).output.startswith(f"pinnace {pinnace.__version__}, serving Kubernetes ")
