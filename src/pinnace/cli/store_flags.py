"""The flags that say which store a command uses."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from pinnace.store.etcd.settings import EtcdSettings, EtcdSettingsError, parse_endpoints

StoreAddress: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="etcd://HOST:PORT[,HOST:PORT]",
        help="Keep all objects in etcd, which several servers may share, instead of in the data directory.",
        show_default=False,
    ),
]
EtcdCaFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="The CA of etcd's certificates; connect with TLS.", show_default=False)
]
EtcdCertificateFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="The client certificate for etcd; connect with TLS.", show_default=False)
]
EtcdKeyFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="The key of the client certificate for etcd.", show_default=False)
]
EtcdUser: TypeAlias = Annotated[str, typer.Option(help="The user to authenticate as in etcd.", show_default=False)]
EtcdPasswordFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="The file with the password of the user in etcd.", show_default=False)
]


def etcd_settings(
    *,
    store: StoreAddress = "",
    etcd_cafile: EtcdCaFile = None,
    etcd_certfile: EtcdCertificateFile = None,
    etcd_keyfile: EtcdKeyFile = None,
    etcd_user: EtcdUser = "",
    etcd_password_file: EtcdPasswordFile = None,
) -> EtcdSettings | None:
    """Return the settings for a store in etcd; None without one.

    Raise EtcdSettingsError if flags are missing or do not go together.
    """
    if not store:
        if etcd_cafile or etcd_certfile or etcd_keyfile or etcd_user or etcd_password_file:
            raise EtcdSettingsError("the --etcd flags are for a store in etcd; add --store etcd://host:port")
        return None
    if (etcd_certfile is None) != (etcd_keyfile is None):
        raise EtcdSettingsError("--etcd-certfile and --etcd-keyfile belong together; give both or none")
    if bool(etcd_user) != (etcd_password_file is not None):
        raise EtcdSettingsError("--etcd-user and --etcd-password-file belong together; give both or none")
    return EtcdSettings(
        endpoints=parse_endpoints(store),
        ca_file=etcd_cafile,
        certificate_file=etcd_certfile,
        key_file=etcd_keyfile,
        user=etcd_user,
        password_file=etcd_password_file,
    )


_FLAGS = tuple(inspect.signature(etcd_settings, eval_str=True).parameters.values())


def with_store_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `etcd` of a command by the flags from which its settings are made."""

    @wraps(command)
    def run(**given: Any) -> None:
        flags = {flag.name: given.pop(flag.name) for flag in _FLAGS}
        try:
            given["etcd"] = etcd_settings(**flags)
        except EtcdSettingsError as error:
            print(f"pinnace: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        command(**given)

    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        own = (parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY),)
        parameters += _FLAGS if parameter.name == "etcd" else own
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
