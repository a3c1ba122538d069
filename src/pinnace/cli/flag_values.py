"""The values of the flags of `pinnace up`. A bad value ends the command with a message that names the flag."""

from __future__ import annotations

from pathlib import Path

from pinnace.cli.data_directory import UnusableDataDirectory, default_data_dir, make_data_dir
from pinnace.cli.failure import fail
from pinnace.cluster.settings import AdmissionSettings, parse_service_ranges
from pinnace.kinds.definitions import minors
from pinnace.network.service_range import SERVICE_RANGE
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS


def choose_data_dir(chosen: Path | None, *, ephemeral: bool) -> Path | None:
    """Return the directory for state; None for a cluster in memory."""
    if ephemeral and chosen is not None:
        fail("--ephemeral keeps nothing, so it cannot be combined with --data-dir; leave one of them out")
    try:
        return None if ephemeral else make_data_dir(chosen or default_data_dir())
    except UnusableDataDirectory as error:
        fail(error)


def parse_minor(version: str) -> str:
    """Return the minor version to serve, without its v; empty for the newest."""
    wanted = version.removeprefix("v")
    if wanted and wanted not in minors():
        fail(f"Kubernetes {wanted} cannot be served; choose one of {', '.join(minors())}")
    return wanted


def build_admission_settings(enabled: str, disabled: str) -> AdmissionSettings:
    """Return the admission plug-ins to enable and to disable."""
    return AdmissionSettings(enabled=frozenset(split_list(enabled)), disabled=frozenset(split_list(disabled)))


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
