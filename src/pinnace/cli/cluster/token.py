"""`pinnace token`: bootstrap tokens, with which machines join the cluster as nodes."""

from __future__ import annotations

import asyncio
import re
import secrets
import string
from base64 import b64decode
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from pinnace.cli.failure import fail
from pinnace.cli.flags.shared import ClusterKubeconfig, Context
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.credentials import NoCredentials
from pinnace.client.kubeconfig import Access, KubeconfigError, find_access
from pinnace.client.transport import ConnectionLost
from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.model import errors
from pinnace.model.bootstrap_tokens import NAMESPACE, PREFIX, TYPE
from pinnace.model.objects import Object
from pinnace.node.identity.join_objects import BOOTSTRAP_GROUP, create_missing, prerequisites
from pinnace.node.identity.joining import hash_of
from pinnace.process.clock import to_rfc3339
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS

_LETTERS = string.ascii_lowercase + string.digits
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_EXPECTED = (KubeconfigError, NoCredentials, ConnectionLost, errors.ApiError, OSError, ValueError)


class TokenAction(StrEnum):
    create = "create"
    list = "list"
    delete = "delete"


def token(
    action: Annotated[TokenAction, typer.Argument(help="The action.", metavar="create|list|delete")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="[TOKEN]", help="create: the token, made at random without one; delete: its first six characters."
        ),
    ] = "",
    ttl: Annotated[str, typer.Option(help="create: the time after which the token expires; 0 for never.")] = "24h0m0s",
    print_join_command: Annotated[
        bool, typer.Option("--print-join-command", help="create: print the command that joins a machine.")
    ] = False,
    kubeconfig: ClusterKubeconfig = None,
    context: Context = "",
) -> None:
    """Create, list and delete bootstrap tokens, with which machines join the cluster as nodes.

    \b
    Examples:
      pinnace token create --print-join-command
      pinnace token list
      pinnace token delete abcdef
    """
    try:
        access = find_access(path=kubeconfig, context=context)
        if action is TokenAction.create:
            command = asyncio.run(_create(access, name, ttl))
            print(command if print_join_command else command.split()[5])
        elif action is TokenAction.list:
            asyncio.run(_list(access))
        elif not name:
            fail("delete needs the first six characters of a token; pinnace token list shows them")
        else:
            asyncio.run(_delete(access, name))
    except _EXPECTED as error:
        fail(error)


async def _create(access: Access, name: str, ttl: str) -> str:
    """Create a token, and what machines need to join with it. Return the command that joins."""
    if not access.ca:
        raise ValueError("the kubeconfig has no CA of the cluster, by which machines that join would know it")
    parts = _TOKEN.fullmatch(name or _random())
    if parts is None:
        raise ValueError("the token must have the form abcdef.0123456789abcdef: six and sixteen of a-z0-9")
    async with connect(access) as client:
        service_range = await _service_range(client)
        is_foreign = b"+pinnace" not in await client.read("/version")
        ipv4_range = service_range.partition(",")[0]
        await create_missing(client, prerequisites(access.server, access.ca, ipv4_range, reads_pods=is_foreign))
        await client.create(_secret(client, parts[1], parts[2], ttl))
    command = (
        f"pinnace node --server {access.server} --token {parts[0]} --discovery-token-ca-cert-hash {hash_of(access.ca)}"
    )
    return command if service_range == SERVICE_RANGE else f"{command} --service-cluster-ip-range {service_range}"


async def _service_range(client: Client) -> str:
    """Return the addresses of Services. Clusters of before Kubernetes 1.33 do not tell them."""
    try:
        service_cidr = await client.get("networking.k8s.io/v1/ServiceCIDR", "kubernetes")
    except errors.ApiError:
        return SERVICE_RANGE
    return ",".join(sorted(service_cidr["spec"]["cidrs"], key=lambda cidr: ":" in cidr))


async def _list(access: Access) -> None:
    async with connect(access) as client:
        tokens = await client.list("v1/Secret", namespace=NAMESPACE, fields=f"type={TYPE}")
    print(f"{'TOKEN':<8}{'EXPIRES'}")
    for secret in tokens:
        expires = _decoded(secret, "expiration") or "<never>"
        print(f"{_decoded(secret, 'token-id'):<8}{expires}")


async def _delete(access: Access, name: str) -> None:
    async with connect(access) as client:
        try:
            await client.delete("v1/Secret", f"{PREFIX}{name.partition('.')[0]}", namespace=NAMESPACE)
        except errors.NotFound:
            fail(f"there is no token {name.partition('.')[0]}; pinnace token list shows them")
    print(f"deleted {name.partition('.')[0]}")


def _secret(client: Client, token_id: str, secret: str, ttl: str) -> Object:
    data = {
        "token-id": token_id,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": BOOTSTRAP_GROUP,
    }
    seconds = parse_duration(ttl).nanos / NANOS
    if seconds > 0:
        data["expiration"] = to_rfc3339(client.clock.now() + timedelta(seconds=seconds))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{PREFIX}{token_id}", "namespace": NAMESPACE},
        "type": TYPE,
        "stringData": data,
    }


def _random() -> str:
    drawn = [secrets.choice(_LETTERS) for _ in range(22)]
    return f"{''.join(drawn[:6])}.{''.join(drawn[6:])}"


def _decoded(secret: Object, key: str) -> str:
    return b64decode((secret.get("data") or {}).get(key) or "").decode(errors="replace")
