"""The image `host`: a copy-on-write view of this machine's own file system, for use without a registry.

A table maps names of well-known images to it where this machine has their program. Users add lines to the file
`host-images` in the directory of the images: a name, a program that must be present, and a default command.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pinnace.node.images.host_programs import CONTAINER_PATH, MACHINE_PATH, make_programs
from pinnace.node.images.references import Reference, parse_reference
from pinnace.node.runtime.errors import InvalidImageName
from pinnace.node.runtime.runtime import Image, ImageConfig

HOST = "host"
HOST_ID = f"sha256:{'0' * 64}"
_TABLE = "host-images"


@dataclass(frozen=True, slots=True)
class HostImage:
    """A name that stands for this machine, if it has the program."""

    repository: str
    program: str
    command: Sequence[str]


DEFAULT_TABLE = (
    HostImage("docker.io/library/host", "sh", ("sh",)),
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
    HostImage("registry.k8s.io/pause", "sleep", ("sleep", "infinity")),
)


class HostImages:
    """Finds names in the table. Names with a digest are never this machine."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / _TABLE
        self._directory = directory / "host-programs"
        self._programs: Path | None = None

    def find(self, reference: Reference) -> Image | None:
        """The image of this machine for a name; None if the table has no such line or the program is missing."""
        if reference.digest:
            return None
        for row in (*self._user_rows(), *DEFAULT_TABLE):
            if row.repository == reference.name and shutil.which(row.program, path=MACHINE_PATH):
                config = ImageConfig(command=row.command, environment=(CONTAINER_PATH,))
                return Image(id=HOST_ID, tags=[str(reference)], config=config)
        return None

    def missing_program(self, reference: Reference) -> str:
        """The program that this machine lacks to stand for an image of the table; empty if the table has no line."""
        rows = (*self._user_rows(), *DEFAULT_TABLE)
        return next((row.program for row in rows if row.repository == reference.name and not reference.digest), "")

    def programs(self) -> Path | None:
        """The directory of programs that this machine lacks. The first call makes it: run it in a thread."""
        if self._programs is None:
            self._programs = make_programs(self._directory)
        return self._programs

    def config_of(self, name: str) -> ImageConfig:
        """The defaults of a container that names its image so."""
        try:
            found = self.find(parse_reference(name))
        except InvalidImageName:
            found = None
        return found.config if found is not None else ImageConfig()

    def _user_rows(self) -> list[HostImage]:
        try:
            lines = self._file.read_text().splitlines()
        except OSError:
            return []
        rows = []
        for line in lines:
            words = shlex.split(line, comments=True)
            if len(words) >= 2:
                rows.append(HostImage(parse_reference(words[0]).name, words[1], words[2:] or words[1:2]))
        return rows
