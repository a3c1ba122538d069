"""The manifests that run an operator in a real cluster: CRDs, the least permissions, and a Deployment."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinnace.model.objects import Object
from pinnace.sdk.api.registration import api_services, versions_of
from pinnace.sdk.handlers.permissions import Permission
from pinnace.sdk.metrics.api import served_versions
from pinnace.sdk.metrics.providers import GROUP, MetricsProvider
from pinnace.sdk.operator.declarations import Declarations
from pinnace.sdk.operator.installation import ServiceName, service_reference, webhook_configurations, webhook_conversion
from pinnace.sdk.resources.plurals import CLUSTER_WIDE

WEBHOOK_PORT = 9443
METRICS_PORT = 8080
_RBAC = "rbac.authorization.k8s.io"
_RESOURCES: Object = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}


_WATCHED = "-objects"
"""Ends the name of a role for the objects of one namespace."""


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
    """More options of `pinnace run`."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    """Requests and limits; the default ones if empty."""
    service_monitor: bool = False
    """Add a Service for the metrics and a ServiceMonitor of the Prometheus operator."""


def definitions(operator: Declarations, place: DeploymentOptions) -> list[Object]:
    """Return its CustomResourceDefinitions. The running operator adds the caBundle of its conversion webhook."""
    found = operator.crds(conversion=webhook_conversion({"service": service_reference(_service(operator, place))}))
    return [*found, MetricsProvider.crd()] if operator.metrics.functions else found


def is_for_watched_namespace(obj: Object) -> bool:
    """Return whether an object is the role for a namespace that the operator's code names: it cannot move elsewhere."""
    return obj["kind"] in ("Role", "RoleBinding") and str(obj["metadata"]["name"]).endswith(_WATCHED)


def roles(operator: Declarations, place: DeploymentOptions) -> list[Object]:
    """Return a ServiceAccount with the permissions that the operator declares, and no others."""
    account = {"kind": "ServiceAccount", "name": operator.name, "namespace": place.namespace}
    metadata = _metadata(operator)
    placed = {**metadata, "namespace": place.namespace}
    found: list[Object] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": placed}]
    whole = cluster_permissions(operator)
    for namespace in operator.namespaces:
        within = {**metadata, "name": f"{operator.name}{_WATCHED}", "namespace": namespace}
        found += [
            _role("Role", within, namespaced_permissions(operator)),
            binding_of("RoleBinding", "Role", within, account),
        ]
    if whole:
        found += [
            _role("ClusterRole", metadata, whole),
            binding_of("ClusterRoleBinding", "ClusterRole", metadata, account),
        ]
    found += [_role("Role", placed, own_permissions(operator)), binding_of("RoleBinding", "Role", placed, account)]
    found += operator.computed.objects(place.namespace) if operator.computed is not None else []
    return [*found, *(_delegation(metadata, account) if operator.serves_apis else ())]


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
    found = [one for one in operator.permissions() if not operator.namespaces or not _is_namespaced(operator, one)]
    change = ("get", "patch")
    group = "admissionregistration.k8s.io"
    if any(handler.mutates for handler in operator.admission):
        found.append(Permission(group, "mutatingwebhookconfigurations", change, (operator.name,)))
    if any(not handler.mutates for handler in operator.admission):
        found.append(Permission(group, "validatingwebhookconfigurations", change, (operator.name,)))
    if operator.served_kinds:
        names = tuple(one["metadata"]["name"] for one in api_services(versions_of(operator.served_kinds), {}))
        found.append(Permission("apiregistration.k8s.io", "apiservices", change, names))
    if operator.metrics.functions:
        # It registers itself: with the multiplexer if there is one, otherwise with APIServices of its own.
        found.append(Permission(GROUP, "metricsproviders", ("create",)))
        found.append(Permission(GROUP, "metricsproviders", change, (operator.name,)))
        names = tuple(f"{version}.{group}" for group, version in served_versions(operator.metrics.functions))
        found.append(Permission("apiregistration.k8s.io", "apiservices", ("create",)))
        found.append(Permission("apiregistration.k8s.io", "apiservices", change, names))
    if operator.computed is not None:
        names = tuple(f"{version}.{group}" for group, version in operator.computed.versions)
        found.append(Permission("apiregistration.k8s.io", "apiservices", ("create",)))
        found.append(Permission("apiregistration.k8s.io", "apiservices", change, names))
    converted = {one.old.declared.crd_name for one in operator.conversions}
    if converted:
        names = tuple(sorted(converted))
        found.append(Permission("apiextensions.k8s.io", "customresourcedefinitions", change, names))
        # RBAC cannot limit a list or watch with a field selector to one name.
        found.append(Permission("apiextensions.k8s.io", "customresourcedefinitions", ("list", "watch")))
    return found


def namespaced_permissions(operator: Declarations) -> list[Permission]:
    """Return the permissions that an operator of some namespaces needs in each of them."""
    return [one for one in operator.permissions() if _is_namespaced(operator, one)]


def _is_namespaced(operator: Declarations, permission: Permission) -> bool:
    """Return whether a permission is for a kind within namespaces, as far as that is known."""
    resource = permission.resource.partition("/")[0]
    cluster_wide = {
        (one.declared.kind.group, one.declared.plural) for one in operator.kinds if not one.declared.namespaced
    }
    return (permission.group, resource) not in cluster_wide and (permission.group, resource) not in CLUSTER_WIDE


def own_permissions(operator: Declarations) -> list[Permission]:
    """Return the permissions that it needs in its own namespace."""
    found = [
        Permission("coordination.k8s.io", "leases", ("create",)),
        Permission("coordination.k8s.io", "leases", ("get", "list", "watch", "update"), (operator.name,)),
    ]
    if operator.has_endpoints:
        secret = f"{operator.name}-webhook-certificate"
        found.append(Permission("", "secrets", ("create",)))
        found.append(Permission("", "secrets", ("get", "update"), (secret,)))
    return [*found, *(operator.computed.own_permissions if operator.computed is not None else ())]


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
    found: list[Object] = [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": placed, "spec": spec}]
    if operator.has_endpoints:
        ports = [{"name": "webhooks", "port": 443, "targetPort": WEBHOOK_PORT}]
        service = {"selector": labels, "ports": ports}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": placed, "spec": service})
        client_config = {"service": service_reference(_service(operator, place))}
        found += webhook_configurations(operator, client_config)
        found += api_services(versions_of(operator.served_kinds), client_config["service"])
    if place.service_monitor:
        found += _monitoring(operator, placed, labels)
    return found


def _monitoring(operator: Declarations, metadata: Object, labels: Object) -> list[Object]:
    """Return a Service for the metrics, and the ServiceMonitor by which the Prometheus operator finds it."""
    named = {**metadata, "name": f"{operator.name}-metrics", "labels": {**labels, "metrics": operator.name}}
    service = {"selector": labels, "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}]}
    monitor = {"selector": {"matchLabels": {"metrics": operator.name}}, "endpoints": [{"port": "metrics"}]}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": service},
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": named, "spec": monitor},
    ]


def _pod_spec(operator: Declarations, place: DeploymentOptions) -> Object:
    command = ["pinnace", "run", *place.file.split(" "), "--no-install", "--no-reload", "--leader-election"]
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


def dockerfile(file: Path, *, version: str, beside: Iterable[Path] = ()) -> str:
    """Return a Dockerfile with the operator's file, the files `beside` it that it imports, and its dependencies."""
    root = file.resolve().parent
    copied = dict.fromkeys([file.name, *(path.relative_to(root).parts[0] for path in beside)])
    modules = [name for name in copied if (root / name).is_file()]
    copies = [f"COPY {' '.join(modules)} ./", *(f"COPY {name} {name}/" for name in copied if name not in modules)]
    needs = _dependencies(root)
    if not any(need.startswith("pinnace") for need in needs):
        needs = [f"pinnace>={version}", *needs]
    quoted = " ".join(f'"{need}"' for need in needs)
    lines = [f"RUN pip install --no-cache-dir {quoted}", "WORKDIR /app"]
    if (root / "requirements.txt").exists():
        lines += ["COPY requirements.txt .", "RUN pip install --no-cache-dir -r requirements.txt"]
    steps = "\n".join([*lines, *copies])
    return f"""FROM python:3.13-slim
{steps}
USER 65532
CMD ["pinnace", "run", "{file.name}", "--no-reload"]
"""


def project_dockerfile(target: str) -> str:
    """Return a Dockerfile for a project with a pyproject.toml: it installs the project with its dependencies."""
    arguments = ", ".join(f'"{part}"' for part in target.split(" "))
    return f"""FROM python:3.13-slim
WORKDIR /app
COPY . .
RUN pip install --no-cache-dir .
USER 65532
CMD ["pinnace", "run", {arguments}, "--no-reload"]
"""


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
