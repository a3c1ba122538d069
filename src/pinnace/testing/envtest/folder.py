"""Writes the folder of programs that envtest and similar tools start."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from pathlib import Path

from pinnace import __version__
from pinnace.testing.envtest import launcher
from pinnace.testing.envtest.flags import ETCD, KUBE_APISERVER, help_text

_ROOT = Path(__file__).parents[3]
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_KUBECTL = """\
# The kubectl of this machine, or the commands of pinnace that have its syntax.
here=$(cd -- "$(dirname -- "$0")" && pwd -P)
saved=$IFS; IFS=:
for folder in $PATH; do
  if [ -x "$folder/kubectl" ] && [ "$(cd -- "$folder" && pwd -P)" != "$here" ]; then
    IFS=$saved; exec "$folder/kubectl" "$@"
  fi
done
IFS=$saved
PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} -m pinnace.cli.main "$@"
"""
_ETCD = """\
PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} -m pinnace.testing.envtest.etcd "$@"
"""
_KUBE_APISERVER = """\
exec {python} -I -S {launcher} "$0" "$@"
"""


def folder_of(store: Path, minor: str) -> Path:
    """Return the path of a minor's folder, named as in setup-envtest's store: k8s/1.36.0-linux-amd64."""
    machine = platform.machine().lower()
    return store / "k8s" / f"{minor}.0-{sys.platform}-{_ARCHITECTURES.get(machine, machine)}"


def write_folder(store: Path, minor: str) -> Path:
    """Write the programs of one Kubernetes minor and return their folder. Programs that are up to date stay."""
    folder = folder_of(store, minor)
    folder.mkdir(parents=True, exist_ok=True)
    places = {
        "root": shlex.quote(str(_ROOT)),
        "python": shlex.quote(sys.executable),
        "launcher": shlex.quote(str(Path(launcher.__file__).absolute())),
    }
    programs = {
        "kube-apiserver": _answers(help_text("kube-apiserver", KUBE_APISERVER), f"Kubernetes v{minor}.0"),
        "etcd": _answers(help_text("etcd", ETCD), "etcd Version: 3.6.0"),
        "kubectl": "",
    }
    bodies = {"kube-apiserver": _KUBE_APISERVER, "etcd": _ETCD, "kubectl": _KUBECTL}
    for name, answers in programs.items():
        text = f"#!/bin/sh\n# {name}, by pinnace {__version__}.\n{answers}{bodies[name].format(**places)}"
        _write_program(folder / name, text)
    return folder


def _answers(help_page: str, version: str) -> str:
    """Return the shell lines that answer --help and --version at once, without a start of Python."""
    return (
        'for arg in "$@"; do\n  case "$arg" in\n'
        f"    --help|-h) cat <<'END_OF_HELP'\n{help_page}END_OF_HELP\n      exit 0 ;;\n"
        f"    --version|--version=true) echo {shlex.quote(version)}; exit 0 ;;\n"
        "  esac\ndone\n"
    )


def _write_program(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text and os.access(path, os.X_OK):
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.chmod(0o755)
    temporary.replace(path)  # Another process may be starting the old one.
