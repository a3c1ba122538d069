"""Distils the Kubernetes definitions when a wheel is built, so that users install neither 150 MB nor 16,000 files.

A build hook of hatchling, also for an editable install. It writes nothing into the checkout: the files go from a
temporary directory to the folder `pinnace_definitions` of the environment.

One file per minor version: a zlib stream of one line of JSON, the index, and the definitions as JSON, end to end. The
index says where each definition lies and which one describes which kind. `pinnace.kinds.definitions` reads it.
"""

from __future__ import annotations

import json
import re
import tempfile
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

Node = dict[str, Any]

FOLDER = "pinnace_definitions"
"""The folder of the files in an environment, beside the package."""

# What the source has lost, as facts about single definitions.
REPLACED: dict[str, Node] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "type": "string",
        "format": "quantity",
        "description": 'A number with an optional suffix: "500m" is a half, "1Gi" is 2^30, "1G" is 10^9.',
    },
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "type": "string",
        "format": "int-or-string",
        "description": 'A whole number or a string: a port by number or by name, a count or a share such as "25%".',
    },
}
FREE_FORM = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
}
# The last two words of the definition's name. Server-side apply needs those that are keys of a list.
DEFAULTS: dict[str, Node] = {
    "v1.AzureDiskVolumeSource": {"cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Shared"},
    "v1.ContainerPort": {"protocol": "TCP"},
    "v1.ISCSIPersistentVolumeSource": {"iscsiInterface": "default"},
    "v1.ISCSIVolumeSource": {"iscsiInterface": "default"},
    "v1.LocalObjectReference": {"name": ""},
    "v1.RBDPersistentVolumeSource": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "v1.RBDVolumeSource": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "v1.ReplicationControllerSpec": {"replicas": 1},
    "v1.ScaleIOPersistentVolumeSource": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
    "v1.ScaleIOVolumeSource": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
    "v1.ServicePort": {"protocol": "TCP"},
    "v1.DeviceToleration": {"operator": "Equal"},
    "v1beta2.DeviceToleration": {"operator": "Equal"},
    "v1beta1.DeviceToleration": {"operator": "Equal"},
    "v1alpha3.DeviceToleration": {"operator": "Equal"},
    "v1beta1.PodCertificateRequestSpec": {"maxExpirationSeconds": 86400},
    "v1alpha1.PodCertificateRequestSpec": {"maxExpirationSeconds": 86400},
    "v1alpha2.PodGroupSpec": {"disruptionMode": "Pod"},
    "v1alpha3.ResourcePoolStatusRequestSpec": {"limit": 100},
}


def source() -> Path:
    package = find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        raise SystemExit("the package kubernetes-validate holds the definitions; install it: pip install '.[dev]'")
    return Path(package.origin).parent / "kubernetes-json-schema"


def restored(node: Node) -> Node:
    """The node as Kubernetes publishes it: one type, no nulls, children likewise."""
    whole = dict(node)
    if isinstance(node.get("type"), list):
        whole["type"] = next(name for name in node["type"] if name != "null")
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            whole[inner] = restored(node[inner])
    if "properties" in node:
        whole["properties"] = {name: restored(child) for name, child in node["properties"].items()}
        for name in ("apiVersion", "kind"):
            whole["properties"].get(name, {}).pop("enum", None)
    return whole


def definition(name: str, node: Node) -> Node:
    if name in REPLACED:
        return REPLACED[name]
    whole = restored(node)
    if name in FREE_FORM:
        whole["x-kubernetes-preserve-unknown-fields"] = True
    for field, value in DEFAULTS.get(".".join(name.split(".")[-2:]), {}).items():
        if field in whole.get("properties", {}):
            whole["properties"][field]["default"] = value
    return whole


def distil(definitions: dict[str, Node]) -> bytes:
    places: dict[str, tuple[int, int]] = {}
    kinds: dict[str, str] = {}
    bodies: list[bytes] = []
    at = 0
    for name in sorted(definitions):
        node = definition(name, definitions[name])
        body = json.dumps(node, ensure_ascii=False, separators=(",", ":")).encode()
        places[name] = (at, at + len(body))
        bodies.append(body)
        at += len(body)
        for kind in node.get("x-kubernetes-group-version-kind", ()):
            kinds.setdefault(f"{kind['group']}/{kind['version']}/{kind['kind']}", name)
    index = json.dumps({"places": places, "kinds": kinds}, separators=(",", ":")).encode()
    return zlib.compress(index + b"\n" + b"".join(bodies), 9)


def build(destination: Path, minors: str) -> list[Path]:
    """Write one file per minor version: `all`, the `newest` or the `older` ones."""
    folders: dict[int, Path] = {}
    for folder in source().glob("v1.*-local"):
        if match := re.fullmatch(r"v1\.(\d+)\.\d+-local", folder.name):
            folders[int(match[1])] = folder
    newest = max(folders)
    chosen = {"all": set(folders), "newest": {newest}, "older": set(folders) - {newest}}[minors]
    written = []
    for minor in sorted(chosen):
        definitions = json.loads((folders[minor] / "_definitions.json").read_bytes())["$defs"]
        path = destination / f"1.{minor}.zlib"
        path.write_bytes(distil(definitions))
        written.append(path)
    return written


class DefinitionsBuildHook(BuildHookInterface[Any]):
    """Called by hatchling before and after it packs a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        # A release splits them between its distributions (tools/distributions.py).
        files = build(Path(self._scratch.name), self.config.get("minors", "all"))
        included = {str(file): f"{FOLDER}/{file.name}" for file in files}
        build_data["force_include"] |= included
        build_data["force_include_editable"] |= included

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._scratch.cleanup()
