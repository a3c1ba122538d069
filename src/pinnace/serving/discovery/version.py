"""The version that a cluster reports."""

from __future__ import annotations

import platform
import sys

from pinnace import __version__

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def version_of(minor: str) -> dict[str, str]:
    """Return the answer of /version: the Kubernetes minor that is served, and the program that serves it."""
    major, _, number = minor.partition(".")
    machine = platform.machine()
    return {
        "major": major,
        "minor": number,
        "emulationMajor": major,
        "emulationMinor": number,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(number) - 1),
        "gitVersion": f"v{minor}.0+pinnace.{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": f"python{sys.version_info.major}.{sys.version_info.minor}",
        "platform": f"{sys.platform}/{_ARCHITECTURES.get(machine, machine or 'unknown')}",
    }
