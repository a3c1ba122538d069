"""The program of the image luksa/website-controller: watches Websites, through the kubectl proxy beside it.

It needs nothing but Python. ../../01-website does the same with the SDK, and does not miss events.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

API = "http://localhost:8001"
WEBSITES = f"{API}/apis/extensions.example.com/v1/websites?watch=true"
Object = dict[str, Any]


def deployment_of(site: Object) -> Object:
    labels = {"webserver": f"{site['metadata']['name']}-website"}
    html = {"name": "html"}
    server = {
        "name": "main",
        "image": "nginx:alpine",
        "ports": [{"containerPort": 80}],
        "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1},
        "volumeMounts": [{**html, "mountPath": "/usr/share/nginx/html"}],
    }
    sync = {
        "name": "git-sync",
        "image": "openweb/git-sync",
        "env": [
            {"name": "GIT_SYNC_REPO", "value": site["spec"]["gitRepo"]},
            {"name": "GIT_SYNC_DEST", "value": "/gitrepo"},
        ],
        "volumeMounts": [{**html, "mountPath": "/gitrepo"}],
    }
    pod = {"containers": [server, sync], "volumes": [{**html, "emptyDir": {}}], "terminationGracePeriodSeconds": 1}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _named(site), "spec": spec}


def service_of(site: Object) -> Object:
    selector = {"webserver": f"{site['metadata']['name']}-website"}
    spec = {"type": "NodePort", "selector": selector, "ports": [{"port": 80, "targetPort": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _named(site), "spec": spec}


def _named(site: Object) -> Object:
    name = f"{site['metadata']['name']}-website"
    return {"name": name, "namespace": site["metadata"]["namespace"], "labels": {"webserver": name}}


def ask(method: str, path: str, body: Object | None = None) -> None:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(API + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        urllib.request.urlopen(request, timeout=30).close()
        print(method, path, flush=True)
    except urllib.error.HTTPError as error:
        print(method, path, error.code, error.read().decode()[:200], flush=True)


def handle(event: Object) -> None:
    site = event["object"]
    namespace, name = site["metadata"]["namespace"], f"{site['metadata']['name']}-website"
    services, deployments = (
        f"/api/v1/namespaces/{namespace}/services",
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
    )
    if event["type"] == "ADDED":
        ask("POST", services, service_of(site))
        ask("POST", deployments, deployment_of(site))
    elif event["type"] == "DELETED":
        ask("DELETE", f"{services}/{name}")
        ask("DELETE", f"{deployments}/{name}?propagationPolicy=Background")


def main() -> None:
    while True:
        try:
            with urllib.request.urlopen(WEBSITES) as events:
                for line in events:
                    handle(json.loads(line))
        except OSError as error:  # The proxy has not started yet, or the watch has ended.
            print("again:", error, flush=True)
        time.sleep(0.2)


main()
