"""An operator's manifests as a kustomization and as a Helm chart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pinnace.model.objects import Object
from pinnace.sdk.installation.manifests import MONITOR, DeploymentOptions, is_for_watched_namespace

_PLACES = {
    "image": "{{ .Values.image }}",
    "replicas": "{{ .Values.replicas }}",
    "namespace": "{{ .Release.Namespace }}",
}
_CONTAINER_VALUES = ("resources", "env")
_POD_VALUES = ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName")
_SET_BY_VALUES = "SET-BY-THE-CHART-FROM-"
_UNQUOTED = re.compile(rf"'?{_SET_BY_VALUES}([A-Za-z.]+)'?")
_KEPT = {"helm.sh/resource-policy": "keep"}
_IF_MONITORED = (
    '{{- if and .Values.serviceMonitor.enabled (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") }}\n',
    "{{- end }}\n",
)


def kustomization(files: Mapping[str, list[Object]], place: DeploymentOptions) -> Object:
    """Return the kustomization.yaml of a directory with these files.

    It sets the namespace of all objects, unless the operator's code names the namespaces that it watches: then each
    has a role of its own, and one namespace for all would move them together.
    """
    name, _, tag = place.image.rpartition(":")
    is_fixed = any(is_for_watched_namespace(obj) for objects in files.values() for obj in objects)
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        **({} if is_fixed else {"namespace": place.namespace}),
        "resources": [name for name, objects in files.items() if objects and name != MONITOR],
        "images": [{"name": name or tag, "newTag": tag if name else "latest"}],
    }


def chart(name: str, version: str) -> Object:
    """Return the Chart.yaml of an operator."""
    return {
        "apiVersion": "v2",
        "name": name,
        "description": f"The operator {name}: its kinds, permissions and Deployment.",
        "type": "application",
        "version": version,
        "appVersion": version,
    }


def chart_values(place: DeploymentOptions, deployment: Object) -> Object:
    """Return the values.yaml of an operator's chart: the settings that differ between clusters."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    return {
        "image": place.image,
        "replicas": place.replicas,
        "resources": container["resources"],
        "env": container.get("env", []),
        "imagePullSecrets": [],
        "nodeSelector": {},
        "tolerations": [],
        "affinity": {},
        "priorityClassName": "",
        "podAnnotations": {},
        "serviceAccount": {"annotations": {}},
        "serviceMonitor": {"enabled": place.service_monitor},
    }


def chart_crds(files: Mapping[str, list[Object]]) -> list[Object]:
    """Return the CRDs that Helm installs before all others, as they are: those without the operator's namespace."""
    return [obj for obj in files.get("crds.yaml", ()) if "conversion" not in obj["spec"]]


def chart_templates(files: Mapping[str, list[Object]], place: DeploymentOptions) -> dict[str, list[Object]]:
    """Return the templates of a chart, with Helm's expressions for its values and the namespace of the release.

    CRDs that the operator converts are templates, too, since they name its Service; Helm keeps them when the chart is
    uninstalled, as it does with those of the `crds` directory.
    """
    converted = [obj for obj in files.get("crds.yaml", ()) if "conversion" in obj["spec"]]
    kept = [{**obj, "metadata": {**obj["metadata"], "annotations": _KEPT}} for obj in converted]
    templates = {**files, "crds.yaml": kept}
    return {name: [_template(obj, place) for obj in objects] for name, objects in templates.items() if objects}


def finish_template(name: str, text: str) -> str:
    """Return a template's YAML with expressions for numbers, lists and maps, which have no quotes."""
    text = text.replace(f"replicas: '{_PLACES['replicas']}'", f"replicas: {_PLACES['replicas']}")
    text = _UNQUOTED.sub(r"{{ toJson .Values.\1 }}", text)
    begin, end = _IF_MONITORED
    return f"{begin}{text}{end}" if name == MONITOR else text


def _template(obj: Object, place: DeploymentOptions) -> Object:
    template: Object = _replace_namespace(_escape(obj), place.namespace)
    if is_for_watched_namespace(obj):
        template["metadata"]["namespace"] = obj["metadata"]["namespace"]
    if template["kind"] == "ServiceAccount":
        template["metadata"]["annotations"] = f"{_SET_BY_VALUES}serviceAccount.annotations"
    if template["kind"] == "Deployment":
        template["spec"]["replicas"] = _PLACES["replicas"]
        pod = template["spec"]["template"]
        pod["metadata"]["annotations"] = f"{_SET_BY_VALUES}podAnnotations"
        container = pod["spec"]["containers"][0]
        container["image"] = _PLACES["image"]
        container |= {name: f"{_SET_BY_VALUES}{name}" for name in _CONTAINER_VALUES}
        pod["spec"] |= {name: f"{_SET_BY_VALUES}{name}" for name in _POD_VALUES}
    return template


def _escape(value: Any) -> Any:
    """Return a copy in which Helm leaves the texts of users as they are."""
    if isinstance(value, dict):
        return {name: _escape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_escape(inner) for inner in value]
    return value.replace("{{", "{{`{{`}}") if isinstance(value, str) else value


def _replace_namespace(value: Any, namespace: str) -> Any:
    """Replace the operator's namespace wherever an object names it: in metadata, subjects, Services, arguments."""
    if isinstance(value, dict):
        return {
            name: _PLACES["namespace"]
            if name == "namespace" and inner == namespace
            else _replace_namespace(inner, namespace)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_replace_namespace(inner, namespace) for inner in value]
    if isinstance(value, str) and value.startswith(f"--webhook-service={namespace}/"):
        return value.replace(f"={namespace}/", f"={_PLACES['namespace']}/", 1)
    return value
