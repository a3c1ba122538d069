"""The sample controller: a Foo has the name and the replicas of a Deployment.

pinnace run examples/02-sample-controller/foo.py --dev
"""

from __future__ import annotations

from typing import Any

from pinnace.sdk import Context, CustomResource, Field, Model, Operator, Permanent

Object = dict[str, Any]
DEPLOYMENT = "apps/v1/Deployment"


class FooSpec(Model):
    deployment_name: str = Field(min_length=1, max_length=63)
    replicas: int = Field(default=1, ge=1, le=10)


class FooStatus(Model):
    available_replicas: int = 0


class Foo(
    CustomResource[FooSpec, FooStatus],
    group="samplecontroller.k8s.example.com",
    version="v1alpha1",
    columns=[".spec.deploymentName", ".spec.replicas", ".status.availableReplicas"],
):
    """A Deployment of nginx under a name of your choice."""


operator = Operator("sample-controller")


@operator.reconcile(Foo, owns=[DEPLOYMENT])
async def reconcile(foo: Foo, ctx: Context) -> None:
    present = await ctx.get(DEPLOYMENT, foo.spec.deployment_name)
    if present is not None and not belongs_to(present, foo):
        # A retry would not help: the user must choose another name.
        raise Permanent(f'the Deployment "{foo.spec.deployment_name}" is there already and not managed by Foo')
    deployment = await ctx.apply(deployment_of(foo))
    for other in await ctx.list(DEPLOYMENT):
        if belongs_to(other, foo) and other["metadata"]["name"] != foo.spec.deployment_name:
            await ctx.delete(DEPLOYMENT, other["metadata"]["name"])
    available = deployment.get("status", {}).get("availableReplicas", 0)
    if present is None:
        ctx.event("Synced", "Foo synced successfully")
    foo.status.available_replicas = available


def belongs_to(obj: Object, foo: Foo) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == foo.metadata.uid for owner in owners)


def deployment_of(foo: Foo) -> Object:
    labels = {"app": "nginx", "controller": foo.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": foo.spec.deployment_name},
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    }
