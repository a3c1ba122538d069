"""The flags by which kubectl and its plug-ins are told which cluster is meant, and completion that asks that one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pinnace.client.connect import connect
from pinnace.client.kubeconfig import KubeconfigError
from pinnace.client.mapping import KindName
from pinnace.client.overrides import Overrides, find_access_with
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors

_PANEL = "Which cluster"


def _flag(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, rich_help_panel=_PANEL)


_FLAGS: dict[str, tuple[Any, Any]] = {
    "kubeconfig": (Annotated[Path | None, _flag("--kubeconfig", help="The kubeconfig file to use.")], None),
    "context": (Annotated[str, _flag("--context", help="The context of the kubeconfig to use.")], ""),
    "cluster": (Annotated[str, _flag("--cluster", help="The cluster of the kubeconfig to use.")], ""),
    "user": (Annotated[str, _flag("--user", help="The user of the kubeconfig to be.")], ""),
    "namespace": (Annotated[str, _flag("-n", "--namespace", help="The namespace to look in.")], ""),
    "server": (Annotated[str, _flag("-s", "--server", help="The address of the API server.")], ""),
    "tls_server_name": (Annotated[str, _flag("--tls-server-name", help="The name in the server's certificate.")], ""),
    "certificate_authority": (
        Annotated[Path | None, _flag("--certificate-authority", help="A file with whom to trust.")],
        None,
    ),
    "insecure_skip_tls_verify": (
        Annotated[bool, _flag("--insecure-skip-tls-verify", help="Trust any server; not safe.")],
        False,
    ),
    "client_certificate": (
        Annotated[Path | None, _flag("--client-certificate", help="A file with a certificate to show.")],
        None,
    ),
    "client_key": (Annotated[Path | None, _flag("--client-key", help="A file with its key.")], None),
    "token": (Annotated[str, _flag("--token", help="A bearer token to show.")], ""),
    "as_": (Annotated[str, _flag("--as", help="Whom to act as.", metavar="USER")], ""),
    "as_group": (
        Annotated[list[str] | None, _flag("--as-group", help="A group to act as. May be said again.")],
        None,
    ),
    "as_uid": (Annotated[str, _flag("--as-uid", help="The uid to act as.")], ""),
}

_FILES = ("kubeconfig", "certificate_authority", "client_certificate", "client_key")


def flag_parameters() -> list[inspect.Parameter]:
    """The flags, as parameters of a function that typer reads."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, kind, default=default, annotation=annotation)
        for name, (annotation, default) in _FLAGS.items()
    ]


def overrides_of(values: Mapping[str, Any]) -> Overrides:
    """What was said with the flags; other values are passed over."""
    said = {name: values[name] for name in _FLAGS if values.get(name)}
    if "as_group" in said:
        said["as_group"] = tuple(said["as_group"])
    # Typer gives the plain text of them while a line is being completed.
    said |= {name: Path(said[name]) for name in _FILES if name in said}
    return Overrides(**said)


def names_of(kind: KindName) -> Callable[[typer.Context, str], list[str]]:
    """For `autocompletion=`: the names of the objects of a kind, in the namespace and cluster that the flags say."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            names = asyncio.run(_names(kind, overrides_of(ctx.params)))
        except (KubeconfigError, ConnectionLost, errors.ApiError, OSError):
            return []  # Whoever types must not be told of trouble in the middle of a line.
        return [name for name in names if name.startswith(incomplete)]

    return complete


async def _names(kind: KindName, said: Overrides) -> list[str]:
    async with connect(find_access_with(said)) as client:
        served = await client.kinds.find(kind)
        where = client.namespace if served.namespaced else ""
        found = await client.list(kind, namespace=where, metadata_only=True)
        return [obj["metadata"]["name"] for obj in found]
