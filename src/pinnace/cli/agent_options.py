"""Options of commands that run nodes on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

EgressFlag = Annotated[
    bool,
    typer.Option(
        "--egress",
        help="Let pods reach networks outside of this machine: by masquerading as root, through pasta or slirp4netns "
        "otherwise.",
    ),
]
AgentCount = Annotated[
    int,
    typer.Option(help="Run this many nodes on this machine, each with pods of its own.", min=1, max=50),
]
