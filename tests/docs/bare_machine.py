"""A machine with Debian 12, python3 with venv and make, and nothing else: a root directory that a process enters.

It shares network and kernel with this machine, as a container on the host's network does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.machine import need
from tests.node.namespaces import need_namespaces

_SUITE = "bookworm"
_MIRROR = "http://deb.debian.org/debian"
_PACKAGES = "ca-certificates,make,python3,python3-venv"
_SECONDS = 300.0
_OF_REGISTRIES = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""How variables begin that say how this machine reaches the registries of packages."""
_FILES = ("etc/hosts", "etc/resolv.conf", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
_ENTER = """
root=$1; shift
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=0755 tmpfs dev
mkdir dev/pts dev/shm
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
pivot_root . .
umount -l .
exec env -C /checkout "$@"
"""


@contextmanager
def bare_machine(checkout: Path) -> Iterator[Path]:
    """Make the root directory of a machine, with a copy of the checkout without its environments and caches.

    Skip the test where that is impossible.
    """
    if os.geteuid() != 0:
        pytest.skip("only root makes a bare machine")
    need_namespaces()
    program = need("mmdebstrap")
    _need_registry()
    options = ["--quiet", "--variant=minbase", f"--include={_PACKAGES}", "--dpkgopt=force-unsafe-io"]
    with tempfile.TemporaryDirectory(prefix="pinnace-bare-") as directory:
        root = Path(directory, "root")
        subprocess.run([program, *options, _SUITE, str(root), _MIRROR], check=True, timeout=_SECONDS)
        for name in _FILES:
            if Path("/", name).exists():
                shutil.copyfile(Path("/", name), root / name)
        shutil.copytree(
            checkout, root / "checkout", ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist")
        )
        yield root


def _need_registry() -> None:
    try:
        urllib.request.urlopen(f"{_MIRROR}/dists/{_SUITE}/Release", timeout=20).close()
    except OSError as error:
        pytest.skip(f"{_MIRROR} cannot be reached: {error}")


@contextmanager
def command_on(root: Path, log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in the checkout of a machine. Afterwards no process of the machine is left."""
    variables = {name: text for name, text in os.environ.items() if name.upper().startswith(_OF_REGISTRIES)}
    variables |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    namespaces = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*namespaces, "sh", "-ceu", _ENTER, "sh", str(root), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()
