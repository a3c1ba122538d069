"""The flags that say which Kubernetes is served: its minor version, feature gates and APIs."""

from __future__ import annotations

from typing import Annotated

import typer

from pinnace.cli.failure import fail
from pinnace.kinds.catalog import check_runtime_config
from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.feature_gates.gates import FeatureGates, InvalidFeatureGates
from pinnace.kinds.runtime_config import InvalidRuntimeConfig, RuntimeConfig

KubernetesVersion = Annotated[
    str, typer.Option(help="The Kubernetes minor version to serve, such as 1.31.", show_default="newest")
]
FeatureGatesFlag = Annotated[
    str,
    typer.Option(
        "--feature-gates",
        metavar="A=true,B=false",
        help="Switch features on or off by Kubernetes' feature gates; AllAlpha and AllBeta switch a stage.",
        show_default=False,
    ),
]
RuntimeConfigFlag = Annotated[
    str,
    typer.Option(
        "--runtime-config",
        metavar="API=true,…",
        help="Switch APIs on or off: api/alpha=true, resource.k8s.io/v1beta1=true, apps/v1/daemonsets=false.",
        show_default=False,
    ),
]


def parse_minor(version: str) -> str:
    """Return the minor version to serve, without its v; empty for the newest."""
    wanted = version.removeprefix("v")
    if wanted and wanted not in minors():
        fail(f"Kubernetes {wanted} cannot be served; choose one of {', '.join(minors())}")
    return wanted


def parse_feature_gates(text: str, version: str) -> str:
    """Check the values of feature gates, and warn of those that will go."""
    try:
        gates = FeatureGates.parse(parse_minor(version) or minors()[-1], text)
    except InvalidFeatureGates as error:
        fail(f"--feature-gates: {error}")
    for warning in gates.warnings:
        typer.echo(f"Warning: {warning}", err=True)
    return str(gates)


def parse_runtime_config(text: str, version: str) -> str:
    """Check which APIs are switched on and off."""
    try:
        config = RuntimeConfig.parse(text)
        if str(config):
            check_runtime_config(config, Definitions.load(parse_minor(version) or minors()[-1]))
    except InvalidRuntimeConfig as error:
        fail(f"--runtime-config: {error}")
    return str(config)
