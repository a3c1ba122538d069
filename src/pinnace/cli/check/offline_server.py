"""A server of this process that judges manifests: the same code that a cluster runs, with nothing stored before."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import orjson

from pinnace.cli.check.manifests import Finding, SourceObject, find_position
from pinnace.cluster.settings import AdmissionSettings, Settings
from pinnace.model.objects import Kind, kind_of
from pinnace.model.resources import Resource
from pinnace.sdk.installation.installation import wait_until_established
from pinnace.serving.messages import Headers, Response
from pinnace.testing.cluster import ADMIN, Cluster, running_cluster

_OF_PROGRAMS = frozenset({"audit.k8s.io", "client.authentication.k8s.io", "kind.x-k8s.io", "k3d.io"})

_UNKNOWABLE = frozenset({"ServiceAccount", "Priority", "RuntimeClass", "ResourceQuota", "PersistentVolumeClaimResize"})
"""Admission plug-ins that ask for objects which are in the cluster, and rarely in the files."""

_FIRST = {
    "Namespace": 0,
    "CustomResourceDefinition": 1,
    "LimitRange": 2,
    "ValidatingAdmissionPolicy": 4,
    "MutatingAdmissionPolicy": 4,
    "ValidatingAdmissionPolicyBinding": 5,
    "MutatingAdmissionPolicyBinding": 5,
}
"""The kinds that others are judged by, in their order: these objects are stored. 3 is for parameters of policies."""
_POLICIES = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
_PARAMETERS, _LAST = 3, 6

_STRICT = re.compile(r'(?:unknown|duplicate) field "((?:[^"\\]|\\.)*)"')
_WRONG_TYPE = re.compile(r"cannot unmarshal (\w+)(?: \S+)? into Go struct field \w+\.(\S+) of type")
_OF_ONLY_VERSION = re.compile(r"^spec\.(?:validation(?=\.openAPIV3Schema)|(subresources|additionalPrinterColumns))")
"""A server names the fields of a definition's only version as if it were of v1beta1."""
_WARNING = re.compile(r'\b299 \S+ "((?:[^"\\]|\\.)*)"')


class OfflineServer:
    """Judges objects one by one. An object that others depend on is stored; all others are only tried."""

    def __init__(self, cluster: Cluster, *, namespace: str, version: str) -> None:
        self._plane = cluster.plane
        self._client = cluster.client
        self._api = cluster.plane.local(ADMIN)
        self._namespace = namespace
        self._version = version
        self._namespaces: set[str] = set()

    async def judge(self, manifests: Sequence[SourceObject]) -> AsyncIterator[tuple[SourceObject, list[Finding]]]:
        """Yield each object with its findings, in the order in which a cluster has to get them."""
        parameters = _parameter_kinds(manifests)
        ranks = {id(manifest): _rank(manifest, parameters) for manifest in manifests}
        for manifest in sorted(manifests, key=lambda manifest: ranks[id(manifest)]):
            yield manifest, await self._judge(manifest, is_stored=ranks[id(manifest)] < _LAST)

    async def _judge(self, manifest: SourceObject, *, is_stored: bool) -> list[Finding]:
        kind = kind_of(manifest.object)
        resource = self._plane.registry.of_kind(kind)
        if resource is None:
            return [_finding(manifest, self._advise(kind), field="kind")]
        namespace = await self._prepare_namespace(manifest, resource)
        answer = await self._create(manifest, resource, namespace, dry_run=not is_stored)
        if is_stored and answer.status == 409:  # Two files have it: the second may replace the first.
            answer = await self._replace(manifest, resource, namespace)
        findings = [
            _finding(manifest, _unquote(text), is_error=False, field=_field_of(_unquote(text)))
            for text in _WARNING.findall(_header(answer.headers, b"Warning"))
        ]
        if answer.status >= 400:
            findings += _errors(manifest, orjson.loads(_body(answer)))
        elif is_stored and kind.name == "CustomResourceDefinition":
            await wait_until_established(self._client, manifest.object["metadata"]["name"])
        return findings

    def _advise(self, kind: Kind) -> str:
        unknown = f"no kind {kind.name} in {kind.api_version}"
        served = sorted({other.kind.api_version for other in self._plane.registry if other.kind.name == kind.name})
        if served:
            return f"{unknown}: Kubernetes {self._version} has it in {', '.join(served)}"
        return f"{unknown}: check its CRD too, or add it with --crds"

    async def _prepare_namespace(self, manifest: SourceObject, resource: Resource) -> str:
        """Return the namespace of the object, and make it: in the cluster it may be there already."""
        if not resource.namespaced:
            return ""
        metadata = manifest.object.get("metadata")
        given = metadata.get("namespace") if isinstance(metadata, dict) else None
        name = given if isinstance(given, str) and given else self._namespace
        if name not in self._namespaces:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self._api.request("POST", "/api/v1/namespaces", orjson.dumps(body), _JSON)  # Or it exists.
            self._namespaces.add(name)
        return name

    async def _create(self, manifest: SourceObject, resource: Resource, namespace: str, *, dry_run: bool) -> Response:
        target = _path(resource, namespace) + "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return await self._api.request("POST", target, orjson.dumps(manifest.object), _JSON)

    async def _replace(self, manifest: SourceObject, resource: Resource, namespace: str) -> Response:
        metadata = manifest.object["metadata"]
        target = f"{_path(resource, namespace)}/{quote(metadata['name'], safe='')}"
        stored = orjson.loads(_body(await self._api.request("GET", target)))
        newer = {**manifest.object, "metadata": {**metadata, "resourceVersion": stored["metadata"]["resourceVersion"]}}
        return await self._api.request("PUT", f"{target}?fieldValidation=Strict&dryRun=All", orjson.dumps(newer), _JSON)


_JSON = {"content-type": "application/json"}


@asynccontextmanager
async def offline_server(*, version: str, namespace: str, gates: str = "") -> AsyncIterator[OfflineServer]:
    """Run a server of a minor version, such as 1.31, in this process and in memory."""
    admission = AdmissionSettings(disabled=_UNKNOWABLE)
    settings = Settings(
        kubernetes_version=version, feature_gates=gates, old_versions=False, controllers=False, admission=admission
    )
    async with running_cluster(settings=settings, controllers=False) as cluster:
        await cluster.settle()
        yield OfflineServer(cluster, namespace=namespace, version=version)


def _path(resource: Resource, namespace: str) -> str:
    kind = resource.kind
    api = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return (
        f"{api}/namespaces/{quote(namespace, safe='')}/{resource.plural}" if namespace else f"{api}/{resource.plural}"
    )


def _body(answer: Response) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


def is_of_program(kind: Kind) -> bool:
    """Whether this is the configuration of a program, such as a Kustomization, which no server has."""
    return kind.group.endswith(".config.k8s.io") or kind.group in _OF_PROGRAMS


def _rank(manifest: SourceObject, parameters: set[Kind]) -> int:
    kind = kind_of(manifest.object)
    is_built_in = not kind.group or kind.group.endswith(".k8s.io")
    if is_built_in and kind.name in _FIRST:
        return _FIRST[kind.name]
    return _PARAMETERS if kind in parameters else _LAST


def _parameter_kinds(manifests: Sequence[SourceObject]) -> set[Kind]:
    """Return the kinds whose objects are parameters of policies."""
    kinds: set[Kind] = set()
    for manifest in manifests:
        if manifest.object["kind"] in _POLICIES and isinstance(spec := manifest.object.get("spec"), dict):
            match spec.get("paramKind"):
                case {"apiVersion": str(api_version), "kind": str(name)}:
                    kinds.add(Kind.parse(api_version, name))
    return kinds


def _errors(manifest: SourceObject, status: Any) -> Iterator[Finding]:
    """Yield the errors in the Status of a refused object, each at its field."""
    message: str = status.get("message", "")
    causes = (status.get("details") or {}).get("causes") or ()
    fields = _STRICT.findall(message) if "strict decoding error" in message else []
    if fields:
        for match in _STRICT.finditer(message):
            yield _finding(manifest, match.group(), field=match[1])
        return
    if wrong := _WRONG_TYPE.search(message):
        yield _finding(manifest, message, field=wrong[2], json_type=wrong[1])
        return
    placed = [cause for cause in causes if cause.get("field")]
    if not placed:
        yield _finding(manifest, message)
        return
    for cause in placed:
        field = cause["field"]
        if manifest.object["kind"] == "CustomResourceDefinition":
            field = _OF_ONLY_VERSION.sub(lambda match: f"spec.versions[0].{match[1] or 'schema'}", field)
        yield _finding(manifest, f"{field}: {cause.get('message', '')}", field=field)


def _finding(
    manifest: SourceObject, message: str, *, field: str = "", json_type: str = "", is_error: bool = True
) -> Finding:
    path = ".".join(filter(None, (manifest.path, field)))
    position = find_position(manifest.chunk, path, json_type=json_type)
    return Finding(
        manifest.chunk.source,
        position,
        message,
        title=manifest.title,
        is_error=is_error,
        field=field,
        place=manifest.place,
    )


def _field_of(warning: str) -> str:
    """Return the field that a warning begins with."""
    head, colon, _ = warning.partition(": ")
    return head if colon and re.fullmatch(r"[a-z]\w*(?:[.[][\w./\]-]+)+", head) else ""


def _header(headers: Headers, name: bytes) -> str:
    if isinstance(headers, bytes):
        prefix = name + b": "
        return "\n".join(line[len(prefix) :].decode() for line in headers.split(b"\r\n") if line.startswith(prefix))
    return "\n".join(value.decode() for key, value in headers if key.lower() == name.lower())


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
