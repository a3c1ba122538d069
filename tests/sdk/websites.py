"""The example of the design: a Website that becomes a Deployment and a Service."""

from __future__ import annotations

from typing import Any

from pinnace.sdk import Context, CustomResource, Field, Model, Operator

Object = dict[str, Any]


class WebsiteSpec(Model):
    git_repo: str = Field(pattern=r"^https://", description="What to serve.")
    replicas: int = Field(default=1, ge=0, le=100)


class WebsiteStatus(Model):
    ready: int = 0


class Website(
    CustomResource[WebsiteSpec, WebsiteStatus], group="extensions.example.com", version="v1", short_names=["ws"]
):
    """A static site, served from a git repository."""


def website_operator() -> Operator:
    operator = Operator("website-controller")

    @operator.reconcile(Website, owns=["apps/v1/Deployment", "v1/Service"])
    async def reconcile(site: Website, ctx: Context) -> None:
        deployment = await ctx.apply(deployment_of(site))
        await ctx.apply(service_of(site))
        site.status.ready = deployment.get("status", {}).get("readyReplicas", 0)

    return operator


def website(name: str = "blog", **spec: Any) -> Object:
    return {
        "apiVersion": "extensions.example.com/v1",
        "kind": "Website",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"gitRepo": "https://example.com/blog.git", **spec},
    }


def deployment_of(site: Website) -> Object:
    labels = {"website": site.name}
    container = {"name": "main", "image": "nginx:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": site.name},
        "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def service_of(site: Website) -> Object:
    spec = {"selector": {"website": site.name}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": site.name}, "spec": spec}
