"""kubectl's flags that choose the cluster, and completion of the names of objects in that cluster."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pinnace.client.connect import connect
from pinnace.client.kubeconfig import KubeconfigError, Overrides, find_access_with
from pinnace.client.mapping import KindName
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors

_PANEL = "Which cluster"


def _flag(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, rich_help_panel=_PANEL)


_FLAGS: dict[str, tuple[Any, Any]] = {
    "kubeconfig": (Annotated[Path | None, _flag("--kubeconfig", help="The kubeconfig file to use.")], None),
    "context": (Annotated[str, _flag("--context", help="The context of the kubeconfig to use.")], ""),
    "cluster": (Annotated[str, _flag("--cluster", help="The cluster of the kubeconfig to use.")], ""),
    "user": (Annotated[str, _flag("--user", help="The user of the kubeconfig to use.")], ""),
    "namespace": (Annotated[str, _flag("-n", "--namespace", help="The namespace to use.")], ""),
    "server": (Annotated[str, _flag("-s", "--server", help="The address of the API server.")], ""),
    "tls_server_name": (
        Annotated[str, _flag("--tls-server-name", help="The expected name in the server's certificate.")],
        "",
    ),
    "certificate_authority": (
        Annotated[Path | None, _flag("--certificate-authority", help="A file with the CAs to trust.")],
        None,
    ),
    "insecure_skip_tls_verify": (
        Annotated[bool, _flag("--insecure-skip-tls-verify", help="Do not verify the server's certificate; insecure.")],
        False,
    ),
    "client_certificate": (
        Annotated[Path | None, _flag("--client-certificate", help="A file with the client certificate.")],
        None,
    ),
    "client_key": (
        Annotated[Path | None, _flag("--client-key", help="A file with the certificate's key.")],
        None,
    ),
    "token": (Annotated[str, _flag("--token", help="The bearer token to send.")], ""),
    "as_": (Annotated[str, _flag("--as", help="The user to impersonate.", metavar="USER")], ""),
    "as_group": (
        Annotated[list[str] | None, _flag("--as-group", help="A group to impersonate; may be repeated.")],
        None,
    ),
    "as_uid": (Annotated[str, _flag("--as-uid", help="The UID to impersonate.")], ""),
}

_FILES = ("kubeconfig", "certificate_authority", "client_certificate", "client_key")


def flag_parameters() -> list[inspect.Parameter]:
    """Return the flags as parameters of a function that typer reads."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, kind, default=default, annotation=annotation)
        for name, (annotation, default) in _FLAGS.items()
    ]


def overrides_of(values: Mapping[str, Any]) -> Overrides:
    """Return the values of the flags; other values are ignored."""
    flags = {name: values[name] for name in _FLAGS if values.get(name)}
    if "as_group" in flags:
        flags["as_group"] = tuple(flags["as_group"])
    # During completion typer passes paths as plain strings.
    flags |= {name: Path(flags[name]) for name in _FILES if name in flags}
    return Overrides(**flags)


def names_of(kind: KindName) -> Callable[[typer.Context, str], list[str]]:
    """For `autocompletion=`: complete the names of objects of a kind, in the namespace and cluster of the flags."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            names = asyncio.run(_names(kind, overrides_of(ctx.params)))
        except (KubeconfigError, ConnectionLost, errors.ApiError, OSError):
            return []  # An error message would corrupt the line that the user is typing.
        return [name for name in names if name.startswith(incomplete)]

    return complete


async def _names(kind: KindName, overrides: Overrides) -> list[str]:
    async with connect(find_access_with(overrides)) as client:
        served = await client.kinds.find(kind)
        where = client.namespace if served.namespaced else ""
        objects = await client.list(kind, namespace=where, metadata_only=True)
        return [obj["metadata"]["name"] for obj in objects]
