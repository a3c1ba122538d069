"""The image `host`: a copy-on-write view of this machine's own file system, for use without a registry.

A table maps names of well-known images to it where this machine has their program. Users add lines to the file
`host-images` in the directory of the images: a name, a program that must be present, and a default command. A node
that runs as root shows its machine only where the user has opted in: its pods could read what root alone may read.

Manifests that name `busybox` expect its applets. A machine with busybox has them without links to their names; nslookup
is a script here, since the applet of today ignores the search list of /etc/resolv.conf.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pinnace.node.errors import ImageFailure, InvalidImageName
from pinnace.node.image_service import HOST_PROGRAMS, Image, ImageConfig, ImageRoot
from pinnace.node.images.host_etc import copy_etc
from pinnace.node.images.references import Reference, parse_reference
from pinnace.process.clock import AlarmClock

_MACHINE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONTAINER_PATH = f"PATH={_MACHINE_PATH}:/{HOST_PROGRAMS}"
HOST_IMAGE = "PINNACE_HOST_IMAGE"
"""The environment variable that answers for the flag `--host-image`."""
HOST = "docker.io/library/host"
HOST_ID = f"sha256:{'0' * 64}"
_TABLE = "host-images"
_LOOK_SECONDS = 5.0
"""A container that starts sooner after another one has the /etc of that one: to look at every file takes 10 ms."""
_LIST_SECONDS = 10.0
_NSLOOKUP = r"""#!/bin/sh
# nslookup NAME: print the addresses of a name as the resolver of the C library finds them, with its search list.
case $# in
0) echo "Usage: nslookup NAME" >&2; exit 1 ;;
1) ;;
*) echo "nslookup: this script asks the server in /etc/resolv.conf alone; install nslookup for options" >&2; exit 1 ;;
esac
canonical() { set -- $(getent hosts "$1"); echo "${2:+ $2}"; }
server=
while read -r word value _; do
  [ "$word" = nameserver ] && { server=$value; break; }
done < /etc/resolv.conf
echo "Server:    $server"
echo "Address 1: $server$(canonical "$server")"
echo
found=$(getent ahosts "$1") || { echo "nslookup: can't resolve '$1'" >&2; exit 1; }
echo "Name:      $1"
number=0
seen=" "
for address in $found; do
  case $address in *[!0-9.:a-f]*|"") continue ;; *[.:]*) ;; *) continue ;; esac
  case $seen in *" $address "*) continue ;; esac
  seen="$seen$address "
  number=$((number + 1))
  echo "Address $number: $address$(canonical "$address")"
done
"""


@dataclass(frozen=True, slots=True)
class HostImage:
    """A name that stands for this machine, if it has the program."""

    repository: str
    program: str
    command: Sequence[str]


DEFAULT_TABLE = (
    HostImage(HOST, "sh", ("sh",)),
    HostImage("docker.io/library/busybox", "sh", ("sh",)),
    HostImage("docker.io/library/alpine", "sh", ("sh",)),
    HostImage("docker.io/library/bash", "bash", ("bash",)),
    HostImage("docker.io/library/debian", "bash", ("bash",)),
    HostImage("docker.io/library/ubuntu", "bash", ("bash",)),
    HostImage("docker.io/library/python", "python3", ("python3",)),
    HostImage("docker.io/library/perl", "perl", ("perl",)),
    HostImage("docker.io/library/node", "node", ("node",)),
    HostImage("docker.io/library/nginx", "nginx", ("nginx", "-g", "daemon off;")),
    HostImage("docker.io/library/redis", "redis-server", ("redis-server",)),
    HostImage("docker.io/curlimages/curl", "curl", ("curl",)),
    # The first process of a process namespace gets no signal that it does not handle.
    HostImage("registry.k8s.io/pause", "sh", ("sh", "-c", "trap 'exit 0' INT TERM; sleep infinity & wait")),
)


def shows_host_image(wanted: bool | None = None) -> bool:
    """Whether images may be this machine. None for `wanted`: as PINNACE_HOST_IMAGE says, or unless the node is root."""
    if wanted is not None:
        return wanted
    variable = os.environ.get(HOST_IMAGE, "")
    return variable != "0" if variable else os.geteuid() != 0


class HostImages:
    """Finds names in the table. Names with a digest are never this machine."""

    def __init__(self, directory: Path, clock: AlarmClock, *, is_available: bool = True) -> None:
        self._clock = clock
        self._file = directory / _TABLE
        self._directory = directory / "host-programs"
        self._etc = directory / "host-files" / "etc"
        self.is_available = is_available
        self._programs: Path | None = None
        self._lock = threading.Lock()
        self._looked_at: float | None = None

    def find(self, reference: Reference) -> Image | None:
        """The image of this machine for a name; None if the table has no such line or the program is missing."""
        if reference.digest or not self.is_available:
            return None
        for row in (*self._user_rows(), *DEFAULT_TABLE):
            if row.repository == reference.name and shutil.which(row.program, path=_MACHINE_PATH):
                config = ImageConfig(command=row.command, environment=(_CONTAINER_PATH,))
                return Image(id=HOST_ID, tags=[str(reference)], config=config)
        return None

    def hint(self, reference: Reference) -> str:
        """Say how this machine can stand for an image of the table; empty if the table has no line for it."""
        rows = (*self._user_rows(), *DEFAULT_TABLE)
        program = next((row.program for row in rows if row.repository == reference.name and not reference.digest), "")
        if not program:
            return ""
        if not self.is_available:
            return f"start the node with --host-image or {HOST_IMAGE}=1: this machine then stands for the image"
        return f"install {program}: this machine then stands for the image"

    def root(self, name: str) -> ImageRoot:
        """The root file system of a container, with /etc as it is now. Blocks: call it in a thread."""
        if not self.is_available:
            raise ImageFailure(f"the image {name} is this machine, which this node does not show without --host-image")
        with self._lock:
            if self._programs is None:
                self._programs = make_programs(self._directory)
            if self._looked_at is None or self._clock.monotonic() - self._looked_at > _LOOK_SECONDS:
                try:
                    copy_etc(self._etc, programs={row.program for row in (*self._user_rows(), *DEFAULT_TABLE)})
                except OSError as error:
                    raise ImageFailure(f"/etc of the image {name} cannot be made: {error}") from error
                self._looked_at = self._clock.monotonic()
        return ImageRoot(self.config_of(name), is_host=True, etc=self._etc, programs=self._programs)

    def config_of(self, name: str) -> ImageConfig:
        """The defaults of a container that names its image so."""
        try:
            image = self.find(parse_reference(name))
        except InvalidImageName:
            image = None
        return image.config if image is not None else ImageConfig()

    def _user_rows(self) -> list[HostImage]:
        try:
            lines = self._file.read_text().splitlines()
        except OSError:
            return []
        rows = []
        for line in lines:
            with contextlib.suppress(ValueError, InvalidImageName):  # A line with a mistake must not stop all pods.
                words = shlex.split(line, comments=True)
                if len(words) >= 2:
                    rows.append(HostImage(parse_reference(words[0]).name, words[1], words[2:] or words[1:2]))
        return rows


def make_programs(directory: Path) -> Path | None:
    """Fill the directory with the programs that this machine lacks. Return None if it cannot be written."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if shutil.which("getent", path=_MACHINE_PATH):
            _add_script(directory / "nslookup")
        python = shutil.which("python3", path=_MACHINE_PATH)
        if python and not shutil.which("python", path=_MACHINE_PATH):
            with contextlib.suppress(FileExistsError):
                (directory / "python").symlink_to(python)
        busybox = shutil.which("busybox", path=_MACHINE_PATH)
        if busybox:
            _add_applets(directory, busybox)
    except OSError:
        return None
    return directory


def _add_script(path: Path) -> None:
    new = path.with_name(f".{path.name}-{os.getpid()}")
    new.write_text(_NSLOOKUP)
    new.chmod(0o755)
    new.replace(path)  # A container that runs the old one keeps it.


def _add_applets(directory: Path, busybox: str) -> None:
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, timeout=_LIST_SECONDS, check=False)
    for name in listed.stdout.split():
        if "/" not in name and not shutil.which(name, path=_MACHINE_PATH):
            with contextlib.suppress(FileExistsError):
                (directory / name).symlink_to(busybox)
