"""A WebApp is a front end and a back end that find each other: two Deployments, two Services, and an Ingress if asked.

pinnace run examples/06-webapp/webapp.py --dev
kubectl apply -f examples/06-webapp/shop.yaml
"""

from __future__ import annotations

from typing import Any

from pinnace.sdk import Conditions, Context, CustomResource, Field, Model, Operator, Rule

Object = dict[str, Any]
DEPLOYMENT, SERVICE, INGRESS = "apps/v1/Deployment", "v1/Service", "networking.k8s.io/v1/Ingress"


class Tier(Model):
    """One half of the application."""

    image: str = Field(min_length=1)
    replicas: int = Field(default=1, ge=0, le=50)
    port: int = Field(default=8080, ge=1, le=65535)
    env: dict[str, str] = Field(default_factory=dict)


class WebAppSpec(
    Model, rules=[Rule("!has(self.host) || self.frontend.replicas > 0", message="a host needs a front end behind it")]
):
    frontend: Tier = Field(description="The tier that users see. It finds the back end at $BACKEND_URL.")
    backend: Tier = Field(description="The tier that the front end calls.")
    host: str | None = Field(
        default=None, max_length=253, description="The host name for clients outside of the cluster."
    )


class WebAppStatus(Model):
    frontend: str = ""
    backend: str = ""
    url: str = ""
    conditions: Conditions = Field(default_factory=list)


class WebApp(
    CustomResource[WebAppSpec, WebAppStatus],
    group="apps.example.com",
    version="v1",
    short_names=["wa"],
    columns=[".status.frontend", ".status.backend", ".status.url"],
):
    """A front end and a back end, managed as one."""


operator = Operator("webapp")


@operator.reconcile(WebApp, owns=[DEPLOYMENT, SERVICE, INGRESS])
async def reconcile(app: WebApp, ctx: Context) -> None:
    spec = app.spec
    backend = await ctx.apply(deployment_of(app, "backend", spec.backend, spec.backend.env))
    await ctx.apply(service_of(app, "backend", spec.backend))
    found_at = {"BACKEND_URL": f"http://{app.name}-backend:{spec.backend.port}"}
    frontend = await ctx.apply(deployment_of(app, "frontend", spec.frontend, {**spec.frontend.env, **found_at}))
    await ctx.apply(service_of(app, "frontend", spec.frontend))
    if spec.host:
        await ctx.apply(ingress_of(app, spec.host))
    elif await ctx.get(INGRESS, app.name):
        await ctx.delete(INGRESS, app.name)

    app.status.frontend, app.status.backend = replicas_text(frontend), replicas_text(backend)
    app.status.url = f"http://{spec.host}" if spec.host else f"http://{app.name}-frontend:{spec.frontend.port}"
    waiting = [half for half, made in (("backend", backend), ("frontend", frontend)) if not is_up(made)]
    if waiting:
        ctx.condition("Ready", False, reason="Waiting", message=f"waiting for {' and '.join(waiting)}")
    else:
        ctx.condition("Ready", True, reason="AllUp")


def ready(deployment: Object) -> int:
    count: int = deployment.get("status", {}).get("readyReplicas", 0)
    return count


def is_up(deployment: Object) -> bool:
    return bool(ready(deployment) >= deployment["spec"]["replicas"])


def replicas_text(deployment: Object) -> str:
    return f"{ready(deployment)}/{deployment['spec']['replicas']}"


def labels_of(app: WebApp, half: str) -> dict[str, str]:
    return {"webapp": app.name, "tier": half}


def deployment_of(app: WebApp, half: str, tier: Tier, env: dict[str, str]) -> Object:
    container = {
        "name": half,
        "image": tier.image,
        "ports": [{"name": "http", "containerPort": tier.port}],
        "env": [{"name": name, "value": value} for name, value in sorted(env.items())],
    }
    labels = labels_of(app, half)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{app.name}-{half}", "labels": labels},
        "spec": {
            "replicas": tier.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def service_of(app: WebApp, half: str, tier: Tier) -> Object:
    labels = labels_of(app, half)
    spec = {"selector": labels, "ports": [{"name": "http", "port": tier.port, "targetPort": "http"}]}
    metadata = {"name": f"{app.name}-{half}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def ingress_of(app: WebApp, host: str) -> Object:
    backend = {"service": {"name": f"{app.name}-frontend", "port": {"name": "http"}}}
    rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": app.name},
        "spec": {"rules": [rule]},
    }
