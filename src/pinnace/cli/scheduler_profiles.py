"""The schedulers that a command knows: kube-scheduler's default, those of a configuration, and those of SDK files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pinnace.cli.operator_files import NoOperator, only_in
from pinnace.cli.session import CommandError
from pinnace.model.objects import Object
from pinnace.scheduler.configuration import (
    InvalidConfiguration,
    SchedulerConfiguration,
    build_profiles,
    default_configuration,
)
from pinnace.scheduler.configuration import load as load_configuration
from pinnace.scheduler.framework.plugin import Handle
from pinnace.scheduler.framework.profile import Profile
from pinnace.sdk.scheduling import Scheduler
from pinnace.server.request.yaml_body import YamlError, read_yaml


def read_configuration(path: Path | None) -> SchedulerConfiguration:
    """Return a KubeSchedulerConfiguration; the default one without a file. Raise CommandError."""
    if path is None:
        return default_configuration()
    try:
        found = read_yaml(path.read_bytes()).value
        if not isinstance(found, dict):
            raise InvalidConfiguration(f"expected an object, found {type(found).__name__}")
        return load_configuration(found)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or error}") from error
    except (YamlError, InvalidConfiguration) as error:
        raise CommandError(f"{path}: {error}") from error


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
    found = profiles.get(name)
    if found is None:
        raise CommandError(
            f"{pod['metadata']['name']} is scheduled by {name}, which is not known here; name its file with "
            "--scheduler FILE, or its configuration with --config FILE"
        )
    return found
