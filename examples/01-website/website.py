"""A Website becomes a Deployment that serves its git repository, and a Service in front of it.

pinnace run examples/01-website/website.py --dev
"""

from __future__ import annotations

from typing import Any

from pinnace.sdk import Context, CustomResource, Field, Model, Operator

Object = dict[str, Any]


class WebsiteSpec(Model):
    git_repo: str = Field(pattern=r"^https://", description="The repository.")  # gitRepo on the wire
    replicas: int = Field(default=1, ge=0, le=100)


class WebsiteStatus(Model):
    ready: int = 0


class Website(
    CustomResource[WebsiteSpec, WebsiteStatus],
    group="extensions.example.com",
    version="v1",
    short_names=["ws"],
    columns=[".spec.gitRepo", ".status.ready"],
):
    """A static site, served from a git repository."""


operator = Operator("website-controller")


@operator.reconcile(Website, owns=["apps/v1/Deployment", "v1/Service"])
async def reconcile(site: Website, ctx: Context) -> None:
    deployment = await ctx.apply(deployment_of(site))  # server-side apply, owner reference set
    await ctx.apply(service_of(site))
    site.status.ready = deployment.get("status", {}).get("readyReplicas", 0)


@operator.validate(Website)
async def no_test_repos(site: Website) -> str | None:
    return "serve something real" if site.spec.git_repo.endswith("/test.git") else None


def deployment_of(site: Website) -> Object:
    labels = {"website": site.name}
    html = {"name": "html"}
    server = {
        "name": "main",
        "image": "nginx:alpine",
        "ports": [{"name": "http", "containerPort": 80}],
        "volumeMounts": [{**html, "mountPath": "/usr/share/nginx/html", "readOnly": True}],
    }
    sync = {
        "name": "git-sync",
        "image": "openweb/git-sync",
        "env": [
            {"name": "GIT_SYNC_REPO", "value": site.spec.git_repo},
            {"name": "GIT_SYNC_DEST", "value": "/gitrepo"},
            {"name": "GIT_SYNC_BRANCH", "value": "master"},
            {"name": "GIT_SYNC_REV", "value": "FETCH_HEAD"},
            {"name": "GIT_SYNC_WAIT", "value": "10"},
        ],
        "volumeMounts": [{**html, "mountPath": "/gitrepo"}],
    }
    pod = {"containers": [server, sync], "volumes": [{**html, "emptyDir": {}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{site.name}-website", "labels": labels},
        "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def service_of(site: Website) -> Object:
    labels = {"website": site.name}
    spec = {"type": "NodePort", "selector": labels, "ports": [{"port": 80, "targetPort": "http"}]}
    metadata = {"name": f"{site.name}-website", "labels": labels}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
