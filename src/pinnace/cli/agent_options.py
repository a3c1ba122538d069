"""The option of `pinnace up` for several nodes on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

AgentCount = Annotated[
    int,
    typer.Option(help="Run this many nodes on this machine, each with pods of its own.", min=1, max=50),
]
