"""The flags of commands that run nodes on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.failure import fail

EgressFlag = Annotated[
    bool,
    typer.Option(
        "--egress",
        help="Let pods reach networks outside of this machine: by masquerading as root, through pasta or slirp4netns "
        "otherwise.",
    ),
]
HostImageFlag = Annotated[
    bool | None,
    typer.Option(
        "--host-image/--no-host-image",
        help="Let the image host and well-known names such as busybox and python be this machine: its programs and a "
        "filtered /etc. PINNACE_HOST_IMAGE=1 or 0 says the same.",
        show_default="on, but off for root",
    ),
]
NodeDirectory = Annotated[
    Path | None,
    typer.Option("--directory", help="The state directory of the node.", show_default="node in the data directory"),
]
OfflineFlag = Annotated[
    bool, typer.Option("--offline", help="Pull from registries on this machine alone, as PINNACE_OFFLINE=1 does.")
]


def checked_egress(*, wanted: bool) -> bool:
    """Return whether pods have egress. Exit if the user wants it and this machine cannot."""
    if wanted and os.geteuid() != 0:
        from pinnace.network.pods.egress import EgressUnavailable, plan_program  # noqa: PLC0415 - few users want it.

        try:
            plan_program(os.getpid())
        except EgressUnavailable as error:
            fail(error)
    return wanted
