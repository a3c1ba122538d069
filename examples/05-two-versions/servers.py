"""One kind in two versions: v1 has one string, v2 two fields. Users of each version see every object in that version.

pinnace run examples/05-two-versions/servers.py --dev
"""

from __future__ import annotations

from pinnace.sdk import CustomResource, Field, Model, Operator


class SpecV1(Model):
    host_port: str = Field(pattern=r"^[^:]+:[0-9]+$")


class SpecV2(Model):
    host: str
    port: int = Field(default=80, ge=1, le=65535)


class ServerV1(
    CustomResource[SpecV1, None],
    group="example.com",
    version="v1",
    kind="Server",
    storage=False,
    deprecated="example.com/v1 Server is deprecated; use v2, which has host and port",
):
    """A server, as host:port."""


class ServerV2(CustomResource[SpecV2, None], group="example.com", version="v2", kind="Server"):
    """A server, with its host and its port."""


operator = Operator("servers")


@operator.convert(ServerV1, ServerV2)
def split(old: ServerV1) -> ServerV2:
    host, _, port = old.spec.host_port.rpartition(":")
    return ServerV2(spec=SpecV2(host=host, port=int(port)))


@operator.convert(ServerV2, ServerV1)
def join(new: ServerV2) -> ServerV1:
    return ServerV1(spec=SpecV1(host_port=f"{new.spec.host}:{new.spec.port}"))
