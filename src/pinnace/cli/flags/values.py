"""The values of flags. A bad value ends the command with a message that names the flag."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.data_directory import UnusableDataDirectory, default_data_dir, make_data_dir
from pinnace.cli.failure import fail
from pinnace.cluster.settings import AdmissionSettings, parse_service_ranges
from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.model.load_balancers import LoadBalancerProvider
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS
from pinnace.server.bootstrap.endpoints import is_usable_address

_SHARED_DELAY = 2.0


def choose_data_dir(chosen: Path | None, *, ephemeral: bool) -> Path | None:
    """Return the directory for state; None for a cluster in memory."""
    if ephemeral and chosen is not None:
        fail("--ephemeral keeps nothing, so it cannot be combined with --data-dir; leave one of them out")
    try:
        return None if ephemeral else make_data_dir(chosen or default_data_dir())
    except UnusableDataDirectory as error:
        fail(error)


def build_admission_settings(enabled: str, disabled: str, configuration: Path | None) -> AdmissionSettings:
    """Return the admission plug-ins to enable and to disable, and the file with their settings."""
    return AdmissionSettings(
        enabled=frozenset(split_list(enabled)),
        disabled=frozenset(split_list(disabled)),
        configuration=configuration,
    )


def flag_values(context: typer.Context) -> dict[str, str]:
    """Return all flags of a command with their values, as Kubernetes writes them."""
    return {
        max(parameter.opts, key=len).removeprefix("--"): _flag_value(context.params.get(parameter.name or ""))
        for parameter in context.command.params
        if any(option.startswith("--") for option in parameter.opts)
    }


def _flag_value(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{','.join(map(str, value))}]"
        case _:
            return str(value)


def split_list(text: str) -> tuple[str, ...]:
    """Return the parts of a list that is separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_ranges(text: str) -> tuple[str, ...]:
    """Return the ranges of Services' addresses, one of each IP family."""
    try:
        return parse_service_ranges(text)
    except ValueError as error:
        fail(f"--service-cluster-ip-range {text}: {error}; expected a range such as {SERVICE_RANGE}")


def parse_seconds(option: str, text: str) -> float:
    """Return the seconds of a duration in Go's format. Exit if it is not one."""
    try:
        seconds = parse_duration(text).nanos / NANOS
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        fail(f"{option} {text}: expected a duration such as 30s or 1m30s")
    return seconds


def seconds_of(text: str) -> float:
    """Return the seconds of a duration. Raise ValueError."""
    try:
        return parse_duration(text).nanos / NANOS
    except ValueError:
        raise ValueError(f'time: invalid duration "{text}"; write 30s, 5m or 1h30m') from None


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
    from pinnace.sdk.command.operator_files import NoOperator, load_balancers_in  # noqa: PLC0415 - it loads the SDK.

    try:
        return load_balancers_in(target)
    except NoOperator as error:
        raise typer.BadParameter(str(error), param_hint="--load-balancers") from None
