"""The flags of `pinnace up` for several servers on one etcd: their addresses, a common port, a graceful stop."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from pinnace.cli.failure import fail
from pinnace.cluster.bootstrap.endpoints import is_usable_address
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS

_SHARED_DELAY = 2.0

AdvertiseAddress: TypeAlias = Annotated[
    str,
    typer.Option(
        "--advertise-address",
        help="The IP address in the endpoints of the Service default/kubernetes, by which others reach this server.",
        show_default="that of --host",
    ),
]
PortSharing: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--permit-port-sharing",
        help="Listen with SO_REUSEPORT, so that several servers on one etcd share a port of this machine.",
    ),
]
ShutdownDelay: TypeAlias = Annotated[
    str,
    typer.Option(
        help="How long the server still serves after SIGTERM. Meanwhile /readyz fails, and each answer closes its "
        "connection, so that clients move to another server.",
        show_default="2s with --store, else 0s",
    ),
]


def advertise_address(address: str) -> str:
    """Return the address of --advertise-address. Exit if others cannot use it."""
    if address and not is_usable_address(address):
        fail(f"--advertise-address {address}: expected an IP address by which others reach this server")
    return address


def shutdown_delay(duration: str, *, is_shared: bool) -> float:
    """Return the seconds of --shutdown-delay-duration. Exit if it is not a duration."""
    if not duration:
        return _SHARED_DELAY if is_shared else 0.0
    try:
        seconds = parse_duration(duration).nanos / NANOS
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        fail(f"--shutdown-delay-duration {duration}: expected a duration such as 0s or 2s")
    return seconds
