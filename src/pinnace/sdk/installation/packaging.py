"""An operator's manifests as a kustomization and as a Helm chart."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pinnace.model.objects import Object
from pinnace.sdk.installation.manifests import DeploymentOptions, is_for_watched_namespace

_PLACES = {
    "image": "{{ .Values.image }}",
    "replicas": "{{ .Values.replicas }}",
    "namespace": "{{ .Release.Namespace }}",
}
_RESOURCES = "RESOURCES-OF-THE-CHART"


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
        "resources": [name for name, objects in files.items() if objects],
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
    return {"image": place.image, "replicas": place.replicas, "resources": container["resources"]}


def chart_templates(files: Mapping[str, list[Object]], place: DeploymentOptions) -> dict[str, list[Object]]:
    """Return the objects with Helm's expressions for the image, the replicas, the resources and the namespace.

    CRDs stay as they are: Helm installs the files of a chart's `crds` directory before all others.
    """
    return {
        name: [_template(obj, place) for obj in objects]
        for name, objects in files.items()
        if objects and name != "crds.yaml"
    }


def finish_template(text: str) -> str:
    """Return a template's YAML with Helm's expressions unquoted where they give numbers or maps."""
    text = text.replace(f"replicas: '{_PLACES['replicas']}'", f"replicas: {_PLACES['replicas']}")
    return text.replace(f"resources: {_RESOURCES}", "resources: {{ toJson .Values.resources }}")


def _template(obj: Object, place: DeploymentOptions) -> Object:
    template = _replace_namespace(deepcopy(obj), place.namespace)
    if is_for_watched_namespace(obj):
        template["metadata"]["namespace"] = obj["metadata"]["namespace"]
    if template["kind"] == "Deployment":
        template["spec"]["replicas"] = _PLACES["replicas"]
        container = template["spec"]["template"]["spec"]["containers"][0]
        container["image"] = _PLACES["image"]
        container["resources"] = _RESOURCES
    assert isinstance(template, dict)
    return template


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
