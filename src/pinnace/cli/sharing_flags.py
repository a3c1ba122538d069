"""The flags of `pinnace up` for several servers on one etcd: a common port, and a stop that clients do not notice."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS

_SHARED_DELAY = 2.0

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


def shutdown_delay(duration: str, *, is_shared: bool) -> float:
    """Return the seconds of --shutdown-delay-duration. Raise ValueError if it is not a duration."""
    if not duration:
        return _SHARED_DELAY if is_shared else 0.0
    try:
        seconds = parse_duration(duration).nanos / NANOS
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise ValueError(f"--shutdown-delay-duration {duration}: expected a duration such as 0s or 2s")
    return seconds
