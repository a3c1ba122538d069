"""What a real cluster needs to run an operator: its kinds, the least permissions, and a Deployment."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pinnace.model.objects import Object
from pinnace.sdk.api.registration import api_services
from pinnace.sdk.operator.installation import ServiceName, conversion_by, service_reference, webhook_configurations
from pinnace.sdk.operator.permissions import Permission

if TYPE_CHECKING:
    from pinnace.sdk.operator.operator import Operator

WEBHOOK_PORT = 9443
METRICS_PORT = 8080
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an operator is to run, and from which image."""

    namespace: str
    image: str
    file: str
    """The operator's file within the image's working directory."""
    replicas: int = 1


def definitions(operator: Operator, place: Place) -> list[Object]:
    """Its CustomResourceDefinitions. The operator itself adds whom to trust when it converts."""
    return operator.crds(conversion=conversion_by({"service": service_reference(_service(operator, place))}))


def roles(operator: Operator, place: Place) -> list[Object]:
    """A ServiceAccount that may do what the operator declares, and no more."""
    account = {"kind": "ServiceAccount", "name": operator.name, "namespace": place.namespace}
    whole, own = cluster_permissions(operator), own_permissions(operator)
    metadata = _metadata(operator)
    placed = {**metadata, "namespace": place.namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": placed},
        _role("ClusterRole", metadata, whole),
        _binding("ClusterRoleBinding", "ClusterRole", metadata, account),
        _role("Role", placed, own),
        _binding("RoleBinding", "Role", placed, account),
        *(_delegation(metadata, account) if operator.served_kinds else ()),
    ]


def _delegation(metadata: Object, account: Object) -> list[Object]:
    """To ask the cluster who calls an API, what they may do, and whom to believe that."""
    delegator = {**metadata, "name": f"{metadata['name']}-auth-delegator"}
    reader = {**metadata, "name": f"{metadata['name']}-auth-reader", "namespace": "kube-system"}
    return [
        _binding("ClusterRoleBinding", "ClusterRole", delegator, account, to="system:auth-delegator"),
        _binding("RoleBinding", "Role", reader, account, to="extension-apiserver-authentication-reader"),
    ]


def cluster_permissions(operator: Operator) -> list[Permission]:
    """What it needs in all namespaces."""
    found = operator.permissions()
    change = ("get", "patch")
    gates = operator.declared.gates
    group = "admissionregistration.k8s.io"
    if any(gate.changes for gate in gates):
        found.append(Permission(group, "mutatingwebhookconfigurations", change, (operator.name,)))
    if any(not gate.changes for gate in gates):
        found.append(Permission(group, "validatingwebhookconfigurations", change, (operator.name,)))
    if operator.served_kinds:
        names = tuple(one["metadata"]["name"] for one in api_services(operator.served_kinds, {}))
        found.append(Permission("apiregistration.k8s.io", "apiservices", change, names))
    converted = {one.old.declared.crd_name for one in operator.declared.conversions}
    if converted:
        names = tuple(sorted(converted))
        found.append(Permission("apiextensions.k8s.io", "customresourcedefinitions", change, names))
        # A watch of one object is a list, which cannot be held to a name otherwise.
        found.append(Permission("apiextensions.k8s.io", "customresourcedefinitions", ("list", "watch")))
    return found


def own_permissions(operator: Operator) -> list[Permission]:
    """What it needs in the namespace that it runs in."""
    found = [
        Permission("coordination.k8s.io", "leases", ("create",)),
        Permission("coordination.k8s.io", "leases", ("get", "update"), (operator.name,)),
    ]
    if operator.is_called:
        secret = f"{operator.name}-webhook-certificate"
        found.append(Permission("", "secrets", ("create",)))
        found.append(Permission("", "secrets", ("get", "update"), (secret,)))
    return found


def workload(operator: Operator, place: Place) -> list[Object]:
    """The Deployment, and what leads to its webhooks and APIs. Raises ValueError for more replicas than can be."""
    if operator.served_kinds and place.replicas > 1:
        raise ValueError(
            f"{operator.name} serves an API, whose revisions are counted by one process: it cannot have "
            f"{place.replicas} replicas"
        )
    labels = {"app.kubernetes.io/name": operator.name}
    command = ["pinnace", "run", place.file, "--no-install", "--no-reload", "--leader-election"]
    command += [f"--metrics-port={METRICS_PORT}"]
    ports = [{"name": "metrics", "containerPort": METRICS_PORT}]
    if operator.is_called:
        command += ["--webhook-host=0.0.0.0", f"--webhook-port={WEBHOOK_PORT}"]
        command += [f"--webhook-service={place.namespace}/{operator.name}"]
        ports.append({"name": "webhooks", "containerPort": WEBHOOK_PORT})
    container: Object = {
        "name": "operator",
        "image": place.image,
        "command": command,
        "ports": ports,
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}},
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}},
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "serviceAccountName": operator.name,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    placed = {**_metadata(operator), "namespace": place.namespace}
    spec: Object = {
        "replicas": place.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if operator.served_kinds:
        spec["strategy"] = {"type": "Recreate"}  # Two would tell those who watch different stories.
    found: list[Object] = [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": placed, "spec": spec}]
    if operator.is_called:
        ports = [{"name": "webhooks", "port": 443, "targetPort": WEBHOOK_PORT}]
        service = {"selector": labels, "ports": ports}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": placed, "spec": service})
        reached = {"service": service_reference(_service(operator, place))}
        found += webhook_configurations(operator, reached)
        found += api_services(operator.served_kinds, reached["service"])
    return found


def dockerfile(file: Path, *, version: str, beside: Iterable[Path] = ()) -> str:
    """An image with the operator's file, those that it imports from `beside` it, and what its project depends on."""
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
    before = "\n".join([*lines, *copies])
    return f"""FROM python:3.13-slim
{before}
USER 65532
CMD ["pinnace", "run", "{file.name}", "--no-reload"]
"""


def _dependencies(root: Path) -> list[str]:
    """What the pyproject.toml in a directory says, if there is one."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text()).get("project") or {}
    except (OSError, tomllib.TOMLDecodeError):
        return []
    return [need for need in project.get("dependencies") or () if isinstance(need, str)]


def _service(operator: Operator, place: Place) -> ServiceName:
    return ServiceName(place.namespace, operator.name)


def _metadata(operator: Operator) -> Object:
    return {"name": operator.name, "labels": {"app.kubernetes.io/name": operator.name}}


def _role(kind: str, metadata: Object, permissions: list[Permission]) -> Object:
    rules = [permission.on_the_wire() for permission in permissions]
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _binding(kind: str, role: str, metadata: Object, account: Object, *, to: str = "") -> Object:
    """`to`: the role, where it is not one that has the same name."""
    reference = {"apiGroup": _RBAC, "kind": role, "name": to or metadata["name"]}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": reference,
        "subjects": [account],
    }
