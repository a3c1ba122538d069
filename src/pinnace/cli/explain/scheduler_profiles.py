"""The schedulers that a command knows: kube-scheduler's default, those of a configuration, and those of SDK files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pinnace.cli.session import CommandError
from pinnace.model.objects import Object
from pinnace.scheduler.configuration import (
    KIND,
    InvalidConfiguration,
    SchedulerConfiguration,
    build_profiles,
    default_configuration,
)
from pinnace.scheduler.configuration import load as load_configuration
from pinnace.scheduler.framework.plugin import Handle
from pinnace.scheduler.framework.profile import Profile
from pinnace.schema.configuration.documents import read_file, read_yaml
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.sdk.command.operator_files import NoOperator, only_in
from pinnace.sdk.scheduling import Scheduler


def read_configuration(path: Path | None) -> SchedulerConfiguration:
    """Return a KubeSchedulerConfiguration; the default one without a file. Raise CommandError."""
    if path is None:
        return default_configuration()
    try:
        configuration = load_configuration(read_yaml(read_file(path), path, KIND))
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    except InvalidConfiguration as error:
        raise CommandError(f"{path}: {error}") from error
    for warning in configuration.warnings:
        print(f"{path}: {warning}", file=sys.stderr)
    return configuration


def find_profiles(config: Path | None, files: Sequence[str]) -> dict[str, Profile]:
    """Return the profiles by schedulerName. Raise CommandError."""
    try:
        profiles = build_profiles(read_configuration(config), Handle())
        for target in files:
            custom = only_in(target, Scheduler)
            profiles[custom.name] = custom.profile()
    except (InvalidConfiguration, NoOperator) as error:
        raise CommandError(str(error)) from error
    return profiles


def profile_for(pod: Object, profiles: dict[str, Profile]) -> Profile:
    """Return the profile that a pod names. Raise CommandError if it is not known."""
    name = pod["spec"].get("schedulerName") or "default-scheduler"
    profile = profiles.get(name)
    if profile is None:
        raise CommandError(
            f"{pod['metadata']['name']} is scheduled by {name}, which is not known here; name its file with "
            "--scheduler FILE, or its configuration with --config FILE"
        )
    return profile
