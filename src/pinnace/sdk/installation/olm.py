"""An operator's manifests as a bundle of the Operator Lifecycle Manager: a ClusterServiceVersion, CRDs and metadata.

The bundle has no webhook configurations and no conversion: the operator registers its webhooks at its start, with a
certificate of its own, and OLM would replace both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pinnace.model.objects import Object
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.handlers.permissions import Permission
from pinnace.sdk.installation.manifests import DeploymentOptions, cluster_permissions, own_permissions

OLDEST_KUBERNETES = "1.25.0"
_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_CHANNEL = "stable"
_NAMESPACE = "POD_NAMESPACE"
_BUNDLE = "operators.operatorframework.io.bundle"
_ADMISSION = "admissionregistration.k8s.io"


def bundle(
    operator: Declarations, files: Mapping[str, list[Object]], place: DeploymentOptions, version: str
) -> dict[str, Object]:
    """Return the files of a bundle by their paths.

    Raise ValueError for a version that OLM cannot compare, and for an operator that OLM cannot install.
    """
    if _SEMVER.fullmatch(version) is None:
        raise ValueError(f"--version {version}: OLM compares versions; write MAJOR.MINOR.PATCH, as in 1.2.0")
    if operator.serves_apis:
        raise ValueError(f"{operator.name} serves an API, which OLM registers with certificates of its own")
    if operator.namespaces:
        raise ValueError(f"{operator.name} names the namespaces that it watches, and a bundle has one for all objects")
    crds = [_without_conversion(crd) for crd in files.get("crds.yaml", ())]
    written = {f"manifests/{crd['metadata']['name']}.yaml": crd for crd in crds}
    for obj in files["deployment.yaml"]:
        if obj["kind"] == "Service":
            written[f"manifests/{obj['metadata']['name']}.service.yaml"] = _without_namespace(obj)
    (deployment,) = (obj for obj in files["deployment.yaml"] if obj["kind"] == "Deployment")
    name = f"{operator.name}.v{version}"
    written[f"manifests/{operator.name}.clusterserviceversion.yaml"] = {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": name,
            "annotations": {
                "alm-examples": json.dumps([_example(crd) for crd in crds], indent=2),
                "capabilities": "Basic Install",
                "containerImage": place.image,
            },
        },
        "spec": _service_version(operator, crds, _installed(deployment, place), version),
    }
    written["metadata/annotations.yaml"] = {"annotations": bundle_labels(operator.name)}
    return written


def bundle_labels(package: str) -> dict[str, str]:
    """Return the annotations of a bundle, which its image has as labels, too."""
    return {
        f"{_BUNDLE}.mediatype.v1": "registry+v1",
        f"{_BUNDLE}.manifests.v1": "manifests/",
        f"{_BUNDLE}.metadata.v1": "metadata/",
        f"{_BUNDLE}.package.v1": package,
        f"{_BUNDLE}.channels.v1": _CHANNEL,
        f"{_BUNDLE}.channel.default.v1": _CHANNEL,
    }


def bundle_dockerfile(package: str) -> str:
    """Return the Dockerfile of the bundle's own image."""
    labels = "\n".join(f"LABEL {name}={value}" for name, value in bundle_labels(package).items())
    return f"FROM scratch\n{labels}\nCOPY manifests /manifests/\nCOPY metadata /metadata/\n"


def _service_version(operator: Declarations, crds: list[Object], deployment: Object, version: str) -> Object:
    modes = {"OwnNamespace": False, "SingleNamespace": False, "MultiNamespace": False, "AllNamespaces": True}
    rules = [permission.to_rule() for permission in (*cluster_permissions(operator), *_registration(operator))]
    own = [permission.to_rule() for permission in own_permissions(operator)]
    account = operator.name
    return {
        "displayName": operator.name.replace("-", " ").title(),
        "description": f"The operator {operator.name}.",
        "version": version,
        "minKubeVersion": OLDEST_KUBERNETES,
        "maturity": "alpha",
        "keywords": [operator.name],
        "links": [],
        "maintainers": [],
        "provider": {"name": operator.name},
        "installModes": [{"type": mode, "supported": supported} for mode, supported in modes.items()],
        "customresourcedefinitions": {"owned": [owned for crd in crds for owned in _owned(crd)]},
        "install": {
            "strategy": "deployment",
            "spec": {
                "deployments": [{"name": operator.name, "spec": deployment["spec"]}],
                "permissions": [{"serviceAccountName": account, "rules": own}],
                "clusterPermissions": [{"serviceAccountName": account, "rules": rules}],
            },
        },
    }


def _registration(operator: Declarations) -> Iterator[Permission]:
    """Yield the permissions to create the webhook configurations, which are not in the bundle."""
    for mutates, resource in ((True, "mutatingwebhookconfigurations"), (False, "validatingwebhookconfigurations")):
        if any(handler.mutates is mutates for handler in operator.admission):
            yield Permission(_ADMISSION, resource, ("create",), (operator.name,))


def _owned(crd: Object) -> Iterator[Object]:
    """Yield an entry for each version of a definition, newest last as in the definition."""
    names = crd["spec"]["names"]
    for version in crd["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        yield {
            "name": crd["metadata"]["name"],
            "version": version["name"],
            "kind": names["kind"],
            "displayName": names["kind"],
            "description": schema.get("description") or f"A {names['kind']}.",
        }


def _example(crd: Object) -> Object:
    """Return an object of the stored version with the defaults of its fields."""
    spec = crd["spec"]
    stored = next(version for version in spec["versions"] if version["storage"])
    fields = stored["schema"]["openAPIV3Schema"]["properties"].get("spec", {}).get("properties", {})
    name = spec["names"]["singular"]
    return {
        "apiVersion": f"{spec['group']}/{stored['name']}",
        "kind": spec["names"]["kind"],
        "metadata": {"name": f"{name}-sample"},
        "spec": {name: field["default"] for name, field in fields.items() if "default" in field},
    }


def _installed(deployment: Object, place: DeploymentOptions) -> Object:
    """Return a Deployment that learns its namespace when it runs: users of OLM choose it."""
    placed = _without_namespace(deployment)
    pod = placed["spec"]["template"]["spec"]
    container = pod["containers"][0]
    old = f"--webhook-service={place.namespace}/"
    command = [word.replace(old, f"--webhook-service=$({_NAMESPACE})/", 1) for word in container["command"]]
    field = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    env = [{"name": _NAMESPACE, "valueFrom": field}, *container.get("env", ())]
    pod["containers"] = [{**container, "command": command, "env": env}]
    return placed


def _without_conversion(crd: Object) -> Object:
    return {**crd, "spec": {name: value for name, value in crd["spec"].items() if name != "conversion"}}


def _without_namespace(obj: Object) -> Object:
    copied: Any = json.loads(json.dumps(obj))
    copied["metadata"].pop("namespace", None)
    return dict(copied)
