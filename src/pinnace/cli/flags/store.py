"""The flags that say which store a command uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from pinnace.cli.failure import fail
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

    Exit if flags are missing or do not go together.
    """
    if not store:
        if etcd_cafile or etcd_certfile or etcd_keyfile or etcd_user or etcd_password_file:
            fail("the --etcd flags are for a store in etcd; add --store etcd://host:port")
        return None
    if (etcd_certfile is None) != (etcd_keyfile is None):
        fail("--etcd-certfile and --etcd-keyfile belong together; give both or none")
    if bool(etcd_user) != (etcd_password_file is not None):
        fail("--etcd-user and --etcd-password-file belong together; give both or none")
    try:
        endpoints = parse_endpoints(store)
    except EtcdSettingsError as error:
        fail(error)
    return EtcdSettings(
        endpoints=endpoints,
        ca_file=etcd_cafile,
        certificate_file=etcd_certfile,
        key_file=etcd_keyfile,
        user=etcd_user,
        password_file=etcd_password_file,
    )
