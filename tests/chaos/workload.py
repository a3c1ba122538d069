"""The workloads of the chaos suite, and their programs: shell scripts of an image that the test makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.chaos.invariants import Beat, Workload
from tests.chaos.schedule import NODES
from tests.machine import need
from tests.node.images.image_files import BuiltImage, directory, entry, layer, link

IMAGE = "busybox-of-tests:1"
_APPLETS = ("sh", "sleep", "timeout", "wget", "httpd", "wc", "cat", "echo", "true")

_MEMBER = """
trap 'exit 0' TERM
read life < /proc/sys/kernel/random/uuid
earlier=$(cat /data/lives 2>/dev/null | wc -l)
echo $life >> /data/lives
while true; do echo $life $earlier >> /shared/$HOSTNAME; sleep 0.1; done
"""
_CLIENT = """
trap 'exit 0' TERM
while true; do timeout 3 wget -q -O - http://$WEB_SERVICE_HOST/page >> /shared/client 2>/dev/null; sleep 0.5; done
"""
_DAEMON = "trap 'exit 0' TERM; while true; do sleep 0.5; done"

WORKLOADS = (Workload("web", 3), Workload("member", 3), Workload("client", 1), Workload("daemon", 3))


def write_image(place: Path) -> Path:
    """Write an archive with the image of all workloads."""
    links = [link(f"bin/{name}", "/bin/busybox") for name in _APPLETS]
    program = entry("bin/busybox", Path(need("busybox")).read_bytes(), mode=0o755)
    folders = [directory(name) for name in ("bin", "etc", "proc", "data", "shared", "page")]
    return BuiltImage([layer(*folders, program, *links, directory("tmp", 0o777))]).write_docker(place, IMAGE)


def _pod(app: str, script: str, shared: Path, **fields: Any) -> dict[str, Any]:
    mounts = [{"name": "shared", "mountPath": "/shared"}, *fields.pop("mounts", [])]
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script], "volumeMounts": mounts}
    container |= fields.pop("container", {})
    volumes = [
        {"name": "shared", "hostPath": {"path": str(shared), "type": "Directory"}},
        *fields.pop("volumes", []),
    ]
    real = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(NODES)}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [real]}]}
        }
    }
    spec = {
        "containers": [container],
        "volumes": volumes,
        "affinity": affinity,
        "terminationGracePeriodSeconds": 2,
        **fields,
    }
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


def manifests(shared: Path) -> list[dict[str, Any]]:
    """The objects that a user creates once. `shared` is a directory of the machine that all pods write to."""
    page = {"volumes": [{"name": "page", "configMap": {"name": "page"}}, {"name": "scratch", "emptyDir": {}}]}
    web = _pod(
        "web",
        "exec httpd -f -p 8080 -h /page",
        shared,
        mounts=[{"name": "page", "mountPath": "/page"}, {"name": "scratch", "mountPath": "/tmp"}],
        container={"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 2}},
        **page,
    )
    member = _pod("member", _MEMBER, shared, mounts=[{"name": "data", "mountPath": "/data"}])
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    ports = [{"port": 80, "targetPort": 8080}]
    return [
        _object("v1", "ConfigMap", "page", data={"page": "ok\n"}),
        _object("v1", "Service", "web", spec={"selector": {"app": "web"}, "ports": ports}),
        _object("v1", "Service", "member", spec={"clusterIP": "None", "selector": {"app": "member"}}),
        _object("apps/v1", "Deployment", "web", spec=_spec("web", web, replicas=3)),
        _object("apps/v1", "Deployment", "client", spec=_spec("client", _pod("client", _CLIENT, shared), replicas=1)),
        _object("apps/v1", "DaemonSet", "daemon", spec=_spec("daemon", _pod("daemon", _DAEMON, shared))),
        _object(
            "apps/v1",
            "StatefulSet",
            "member",
            spec=_spec("member", member, replicas=3, serviceName="member", volumeClaimTemplates=[claim])
            | {"podManagementPolicy": "Parallel"},
        ),
    ]


def job(name: str, shared: Path) -> dict[str, Any]:
    template = _pod(name, f"sleep 0.2; echo {name} >> /shared/jobs", shared, restartPolicy="OnFailure")
    return _object(
        "batch/v1", "Job", name, spec={"completions": 2, "parallelism": 2, "backoffLimit": 20, "template": template}
    )


def _spec(app: str, template: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"selector": {"matchLabels": {"app": app}}, "template": template, **fields}


def _object(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, **fields}


def read_beats(file: Path) -> list[Beat]:
    """Read what a member wrote. Lines that a full disk has cut are left out."""
    beats = []
    for line in file.read_text(errors="replace").splitlines() if file.exists() else ():
        words = line.split()
        if len(words) == 2 and words[1].isdecimal():
            beats.append(Beat(words[0], int(words[1])))
    return beats
