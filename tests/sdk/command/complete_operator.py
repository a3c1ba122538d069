"""An operator with every kind of handler that its image has to support: run by pinnace-sdk alone."""

from __future__ import annotations

from typing import Any

from pinnace.sdk import Context, CustomResource, Field, Memory, MetricQuery, Model, Operator, Sample


class SpecV1(Model):
    host_port: str = Field(pattern=r"^[^:]+:[0-9]+$")


class SpecV2(Model):
    host: str = Field(pattern=r"^[a-z.]+$")
    port: int = Field(default=80, ge=1, le=65535)


class Status(Model):
    url: str = ""


class ServerV1(CustomResource[SpecV1, Status], group="example.com", version="v1", kind="Server", storage=False):
    """A server, as host:port."""


class ServerV2(CustomResource[SpecV2, Status], group="example.com", version="v2", kind="Server"):
    """A server, with its host and its port."""


class RackSpec(Model):
    units: int = Field(default=42, ge=1)


class Rack(CustomResource[RackSpec, None], group="racks.example.com", version="v1"):
    """A rack, which the operator keeps."""


operator = Operator("complete")
operator.serves(Rack, Memory())


@operator.reconcile(ServerV2, owns=["v1/ConfigMap"])
async def reconcile(server: ServerV2, ctx: Context) -> None:
    server.status.url = f"http://{server.spec.host}:{server.spec.port}"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": server.name}}
    await ctx.apply({**config, "data": {"url": server.status.url}})


@operator.validate("v1/ConfigMap")
def refuse_secrets(obj: dict[str, Any]) -> str | None:
    return "keep it in a Secret" if "password" in (obj.get("data") or {}) else None


@operator.convert(ServerV1, ServerV2)
def split(old: ServerV1) -> ServerV2:
    host, _, port = old.spec.host_port.rpartition(":")
    return ServerV2(spec=SpecV2(host=host, port=int(port)))


@operator.convert(ServerV2, ServerV1)
def join(new: ServerV2) -> ServerV1:
    return ServerV1(spec=SpecV1(host_port=f"{new.spec.host}:{new.spec.port}"))


@operator.metrics.external("queue_messages")
async def queue_messages(query: MetricQuery) -> list[Sample]:
    return [Sample(120, labels={"queue": "orders"})]
