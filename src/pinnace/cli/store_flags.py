"""The flags that say which store a command uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

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
    store: str, files: tuple[Path | None, Path | None, Path | None], user: str, password_file: Path | None
) -> EtcdSettings | None:
    """Return the settings for a store in etcd; None without one. `files` are CA, certificate and key.

    Raise EtcdSettingsError if flags are missing or do not go together.
    """
    ca, certificate, key = files
    if not store:
        if any(files) or user or password_file:
            raise EtcdSettingsError("the --etcd flags are for a store in etcd; add --store etcd://host:port")
        return None
    if (certificate is None) != (key is None):
        raise EtcdSettingsError("--etcd-certfile and --etcd-keyfile belong together; give both or none")
    if bool(user) != (password_file is not None):
        raise EtcdSettingsError("--etcd-user and --etcd-password-file belong together; give both or none")
    return EtcdSettings(
        endpoints=parse_endpoints(store),
        ca_file=ca,
        certificate_file=certificate,
        key_file=key,
        user=user,
        password_file=password_file,
    )
