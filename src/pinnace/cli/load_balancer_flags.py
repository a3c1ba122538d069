"""The flag that names a provider of load balancers in a Python file."""

from __future__ import annotations

from typing import Annotated

import typer

from pinnace.model.load_balancers import LoadBalancerProvider

LoadBalancers = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Let the provider in this file make the load balancers of Services.",
        show_default="addresses on loopback",
    ),
]


def find_load_balancers(target: str) -> LoadBalancerProvider | None:
    """Return the provider in a file; None without one. Raise BadParameter if the file has none."""
    if not target:
        return None
    from pinnace.cli.operator_files import NoOperator, load_balancers_in  # noqa: PLC0415 - it loads the SDK.

    try:
        return load_balancers_in(target)
    except NoOperator as error:
        raise typer.BadParameter(str(error), param_hint="--load-balancers") from None
