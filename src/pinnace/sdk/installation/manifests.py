"""The manifests that run an operator in a real cluster: CRDs, the least permissions, and a Deployment."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pinnace.model.objects import Object
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.handlers.permissions import Permission
from pinnace.sdk.installation.api_registration import api_services, versions_of
from pinnace.sdk.installation.installation import (
    ServiceName,
    service_reference,
    webhook_configurations,
    webhook_conversion,
)
from pinnace.sdk.metrics.api import served_versions
from pinnace.sdk.metrics.providers import GROUP, MetricsProvider
from pinnace.sdk.resources.plurals import CLUSTER_WIDE

MONITOR = "service-monitor.yaml"
"""The file of the ServiceMonitor, in the directory `monitoring`: a folder with a kind that is not served cannot be
applied as a whole."""
WEBHOOK_PORT = 9443
METRICS_PORT = 8080
_RBAC = "rbac.authorization.k8s.io"
_RESOURCES: Object = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}


_WATCHED = "-objects"
"""Ends the name of a role for the objects of one namespace."""


class ImageProgram(NamedTuple):
    """The distribution that an image installs, and the command that runs a file with it."""

    distribution: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Options that each of its commands in an image has."""

    def run(self, target: str) -> list[str]:
        """Return the command that runs a file or a module."""
        return [*self.command, *target.split(" "), *self.options]


OPERATOR_PROGRAM = ImageProgram("pinnace-sdk", ("pinnace-operator", "run"))
SCHEDULER_PROGRAM = ImageProgram("pinnace", ("pinnace", "run"), ("--no-reload",))
"""Schedulers need numpy and the built-in plug-ins, which pinnace-sdk does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentOptions:
    """The namespace, image and size of an operator's Deployment."""

    namespace: str
    image: str
    file: str
    """The operator's file within the image's working directory, as website.py or website.py:name; or -m module:name."""
    replicas: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    args: Sequence[str] = ()
    """More options of the image's command."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    """Requests and limits; the default ones if empty."""
    program: ImageProgram = OPERATOR_PROGRAM
    service_monitor: bool = False
    """Add a Service for the metrics and a ServiceMonitor of the Prometheus operator."""


def definitions(operator: Declarations, place: DeploymentOptions) -> list[Object]:
    """Return its CustomResourceDefinitions. The running operator adds the caBundle of its conversion webhook."""
    crds = operator.crds(conversion=webhook_conversion({"service": service_reference(_service(operator, place))}))
    return [*crds, MetricsProvider.crd()] if operator.metrics.functions else crds


def is_for_watched_namespace(obj: Object) -> bool:
    """Return whether an object is the role for a namespace that the operator's code names: it cannot move elsewhere."""
    return obj["kind"] in ("Role", "RoleBinding") and str(obj["metadata"]["name"]).endswith(_WATCHED)


def roles(operator: Declarations, place: DeploymentOptions) -> list[Object]:
    """Return a ServiceAccount with the permissions that the operator declares, and no others."""
    account = {"kind": "ServiceAccount", "name": operator.name, "namespace": place.namespace}
    metadata = _metadata(operator)
    placed = {**metadata, "namespace": place.namespace}
    objects: list[Object] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": placed}]
    whole = cluster_permissions(operator)
    for namespace in operator.namespaces:
        within = {**metadata, "name": f"{operator.name}{_WATCHED}", "namespace": namespace}
        objects += [
            _role("Role", within, namespaced_permissions(operator)),
            binding_of("RoleBinding", "Role", within, account),
        ]
    if whole:
        objects += [
            _role("ClusterRole", metadata, whole),
            binding_of("ClusterRoleBinding", "ClusterRole", metadata, account),
        ]
    objects += [_role("Role", placed, own_permissions(operator)), binding_of("RoleBinding", "Role", placed, account)]
    objects += operator.computed.objects(place.namespace) if operator.computed is not None else []
    return [*objects, *(_delegation(metadata, account) if operator.serves_apis else ())]


def _delegation(metadata: Object, account: Object) -> list[Object]:
    """Return the bindings of an aggregated API server: token and access reviews, and the front proxy's CA."""
    delegator = {**metadata, "name": f"{metadata['name']}-auth-delegator"}
    reader = {**metadata, "name": f"{metadata['name']}-auth-reader", "namespace": "kube-system"}
    return [
        binding_of("ClusterRoleBinding", "ClusterRole", delegator, account, to="system:auth-delegator"),
        binding_of("RoleBinding", "Role", reader, account, to="extension-apiserver-authentication-reader"),
    ]


def cluster_permissions(operator: Declarations) -> list[Permission]:
    """Return the permissions that it needs in all namespaces, and for kinds outside of namespaces."""
    permissions = [
        permission
        for permission in operator.permissions()
        if not operator.namespaces or not _is_namespaced(operator, permission)
    ]
    change, follow = ("get", "patch"), ("get", "list", "patch", "watch")
    group = "admissionregistration.k8s.io"
    if any(handler.mutates for handler in operator.admission):
        permissions.append(Permission(group, "mutatingwebhookconfigurations", follow, (operator.name,)))
    if any(not handler.mutates for handler in operator.admission):
        permissions.append(Permission(group, "validatingwebhookconfigurations", follow, (operator.name,)))
    if operator.served_kinds:
        names = tuple(service["metadata"]["name"] for service in api_services(versions_of(operator.served_kinds), {}))
        permissions.append(Permission("apiregistration.k8s.io", "apiservices", change, names))
    if operator.metrics.functions:
        # It registers itself: with the multiplexer if there is one, otherwise with APIServices of its own.
        permissions.append(Permission(GROUP, "metricsproviders", ("create",)))
        permissions.append(Permission(GROUP, "metricsproviders", change, (operator.name,)))
        names = tuple(f"{version}.{group}" for group, version in served_versions(operator.metrics.functions))
        permissions.append(Permission("apiregistration.k8s.io", "apiservices", ("create",)))
        permissions.append(Permission("apiregistration.k8s.io", "apiservices", change, names))
    if operator.computed is not None:
        names = tuple(f"{version}.{group}" for group, version in operator.computed.versions)
        permissions.append(Permission("apiregistration.k8s.io", "apiservices", ("create",)))
        permissions.append(Permission("apiregistration.k8s.io", "apiservices", change, names))
    converted = {conversion.old.declared.crd_name for conversion in operator.conversions}
    if converted:
        names = tuple(sorted(converted))
        # A list or watch with the field selector metadata.name is authorized by that name.
        permissions.append(Permission("apiextensions.k8s.io", "customresourcedefinitions", follow, names))
    return permissions


def namespaced_permissions(operator: Declarations) -> list[Permission]:
    """Return the permissions that an operator of some namespaces needs in each of them."""
    return [permission for permission in operator.permissions() if _is_namespaced(operator, permission)]


def _is_namespaced(operator: Declarations, permission: Permission) -> bool:
    """Return whether a permission is for a kind within namespaces, as far as that is known."""
    resource = permission.resource.partition("/")[0]
    cluster_wide = {
        (kind.declared.kind.group, kind.declared.plural) for kind in operator.kinds if not kind.declared.namespaced
    }
    return (permission.group, resource) not in cluster_wide and (permission.group, resource) not in CLUSTER_WIDE


def own_permissions(operator: Declarations) -> list[Permission]:
    """Return the permissions that it needs in its own namespace."""
    if operator.shards:  # A Lease for each shard and each process.
        verbs = ("create", "delete", "get", "list", "update", "watch")
        permissions = [Permission("coordination.k8s.io", "leases", verbs)]
    else:
        permissions = [
            Permission("coordination.k8s.io", "leases", ("create",)),
            Permission("coordination.k8s.io", "leases", ("get", "list", "watch", "update"), (operator.name,)),
        ]
    if operator.has_endpoints:
        secret = f"{operator.name}-webhook-certificate"
        permissions.append(Permission("", "secrets", ("create",)))
        permissions.append(Permission("", "secrets", ("get", "update"), (secret,)))
    return [*permissions, *(operator.computed.own_permissions if operator.computed is not None else ())]


def workload(operator: Declarations, place: DeploymentOptions) -> list[Object]:
    """Return the Deployment, and the Service and configurations of its webhooks and APIs.

    Raise ValueError for several replicas of an operator that serves an API.
    """
    if operator.served_kinds and place.replicas > 1:
        raise ValueError(
            f"{operator.name} serves an API, whose revisions are counted by one process: it cannot have "
            f"{place.replicas} replicas"
        )
    placed = {**_metadata(operator), "namespace": place.namespace}
    labels = {"app.kubernetes.io/name": operator.name}
    spec: Object = {
        "replicas": place.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod_spec(operator, place)},
    }
    if operator.served_kinds:
        spec["strategy"] = {"type": "Recreate"}  # Two pods would send different revisions to watchers.
    objects: list[Object] = [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": placed, "spec": spec}]
    if operator.has_endpoints:
        ports = [{"name": "webhooks", "port": 443, "targetPort": WEBHOOK_PORT}]
        service = {"selector": labels, "ports": ports}
        objects.append({"apiVersion": "v1", "kind": "Service", "metadata": placed, "spec": service})
        client_config = {"service": service_reference(_service(operator, place))}
        objects += webhook_configurations(operator, client_config)
        objects += api_services(versions_of(operator.served_kinds), client_config["service"])
    return objects


def monitoring(operator: Declarations, place: DeploymentOptions) -> list[Object]:
    """Return a Service for the metrics, and the ServiceMonitor by which the Prometheus operator finds it."""
    labels = {"app.kubernetes.io/name": operator.name}
    metadata = {**_metadata(operator), "namespace": place.namespace}
    named = {**metadata, "name": f"{operator.name}-metrics", "labels": {**labels, "metrics": operator.name}}
    service = {"selector": labels, "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}]}
    monitor = {"selector": {"matchLabels": {"metrics": operator.name}}, "endpoints": [{"port": "metrics"}]}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": service},
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": named, "spec": monitor},
    ]


def _pod_spec(operator: Declarations, place: DeploymentOptions) -> Object:
    command = [*place.program.run(place.file), "--no-install", "--leader-election"]
    command += [f"--metrics-port={METRICS_PORT}", *place.args]
    # A replica that converts must be reached before its caches are full: the objects in them are converted by it.
    ready = "/healthz" if operator.conversions else "/readyz"
    ports = [{"name": "metrics", "containerPort": METRICS_PORT}]
    if operator.has_endpoints:
        command += ["--webhook-host=0.0.0.0", f"--webhook-port={WEBHOOK_PORT}"]
        command += [f"--webhook-service={place.namespace}/{operator.name}"]
        ports.append({"name": "webhooks", "containerPort": WEBHOOK_PORT})
    container: Object = {
        "name": "operator",
        "image": place.image,
        "command": command,
        "ports": ports,
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}},
        # The default period of 10 s is the time that most replicas would need to become ready.
        "readinessProbe": {"httpGet": {"path": ready, "port": "metrics"}, "periodSeconds": 2},
        "resources": dict(place.resources) or _RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if place.env:
        container["env"] = [{"name": name, "value": value} for name, value in place.env.items()]
    return {
        "serviceAccountName": operator.name,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def dockerfile(file: Path, program: ImageProgram, *, version: str, beside: Iterable[Path] = ()) -> str:
    """Return a Dockerfile with the operator's file, the files `beside` it that it imports, and its dependencies."""
    root = file.resolve().parent
    copied = dict.fromkeys([file.name, *(path.relative_to(root).parts[0] for path in beside)])
    modules = [name for name in copied if (root / name).is_file()]
    copies = [f"COPY {' '.join(modules)} ./", *(f"COPY {name} {name}/" for name in copied if name not in modules)]
    needs = _dependencies(root)
    # pinnace depends on pinnace-sdk.
    if not {_distribution_of(need) for need in needs} & {program.distribution, "pinnace"}:
        needs = [f"{program.distribution}>={version}", *needs]
    quoted = " ".join(f'"{need}"' for need in needs)
    lines = [f"RUN pip install --no-cache-dir {quoted}", "WORKDIR /app"]
    if (root / "requirements.txt").exists():
        lines += ["COPY requirements.txt .", "RUN pip install --no-cache-dir -r requirements.txt"]
    steps = "\n".join([*lines, *copies])
    return f"""FROM python:3.13-slim
{steps}
USER 65532
CMD {json.dumps(program.run(file.name))}
"""


def project_dockerfile(target: str, program: ImageProgram) -> str:
    """Return a Dockerfile for a project with a pyproject.toml: it installs the project with its dependencies."""
    return f"""FROM python:3.13-slim
WORKDIR /app
COPY . .
RUN pip install --no-cache-dir .
USER 65532
CMD {json.dumps(program.run(target))}
"""


def _distribution_of(need: str) -> str:
    """Return the distribution that a requirement names: pinnace of pinnace[testing]>=0.1."""
    name = re.match(r"[A-Za-z0-9._-]+", need)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


def _dependencies(root: Path) -> list[str]:
    """Return the dependencies in a directory's pyproject.toml, if there is one."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text()).get("project") or {}
    except (OSError, tomllib.TOMLDecodeError):
        return []
    return [need for need in project.get("dependencies") or () if isinstance(need, str)]


def _service(operator: Declarations, place: DeploymentOptions) -> ServiceName:
    return ServiceName(place.namespace, operator.name)


def _metadata(operator: Declarations) -> Object:
    return {"name": operator.name, "labels": {"app.kubernetes.io/name": operator.name}}


def _role(kind: str, metadata: Object, permissions: list[Permission]) -> Object:
    rules = [permission.to_rule() for permission in permissions]
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def binding_of(kind: str, role: str, metadata: Object, account: Object, *, to: str = "") -> Object:
    """`to`: the role, if its name differs from the binding's."""
    reference = {"apiGroup": _RBAC, "kind": role, "name": to or metadata["name"]}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": reference,
        "subjects": [account],
    }
