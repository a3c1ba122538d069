"""The flags of `pinnace up` for simulated nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinnace.cluster.settings import Settings

StagesFile = Annotated[
    Path | None,
    typer.Option(
        help="A file of KWOK Stages (kwok.x-k8s.io/v1alpha1) that simulated nodes and their pods go through.",
        show_default=False,
    ),
]
UsageFile = Annotated[
    Path | None,
    typer.Option(
        help="The usage of simulated pods: KWOK's ResourceUsage and ClusterResourceUsage in a .yaml file, or recorded "
        "as CSV with a heading: time,pods,cpu,memory (and namespace, container). "
        "Rows such as 60,app=web,80%,64Mi or 0,app=web,12/pods,.",
        show_default=False,
    ),
]


def simulation_error(settings: Settings) -> str:
    """Return why the settings of the simulation do not go together; empty if they do."""
    for flag, file in (("--stages", settings.stages), ("--usage", settings.usage)):
        if file is not None and not settings.nodes:
            return f"{flag} is for simulated nodes, and there are none; add --nodes N"
    return ""
