"""The signals of a node that thresholds refer to, and the thresholds in kubelet's notation."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pinnace.model import quantity

MEMORY, NODE_FILES, NODE_INODES = "memory.available", "nodefs.available", "nodefs.inodesFree"
IMAGE_FILES, PIDS = "imagefs.available", "pid.available"
CONDITIONS = {
    MEMORY: "MemoryPressure",
    NODE_FILES: "DiskPressure",
    NODE_INODES: "DiskPressure",
    IMAGE_FILES: "DiskPressure",
    PIDS: "PIDPressure",
}
RESOURCES = {
    MEMORY: "memory",
    NODE_FILES: "ephemeral-storage",
    NODE_INODES: "inodes",
    IMAGE_FILES: "ephemeral-storage",
    PIDS: "pids",
}
DEFAULT_THRESHOLDS = "memory.available<100Mi,nodefs.available<5%,nodefs.inodesFree<5%,imagefs.available<5%"
"""Kubelet's, but for the disk: on a laptop or a CI runner a disk that is nearly full is common."""
_threshold = re.compile(r"([a-zA-Z.]+)<([0-9.]+%|[0-9.]+[A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class Signal:
    available: int
    capacity: int


class Signals(Protocol):
    def read(self) -> Mapping[str, Signal]:
        """Return the signals that this machine has."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A signal must not fall below a quantity, or below a share of its capacity."""

    signal: str
    text: str

    def quantity_of(self, capacity: int) -> int:
        if self.text.endswith("%"):
            return int(float(self.text[:-1]) * capacity / 100)
        return quantity.parse(self.text).value

    def is_met(self, seen: Signal) -> bool:
        return seen.available < self.quantity_of(seen.capacity)


def parse_thresholds(text: str) -> Sequence[Threshold]:
    """Parse the value of --eviction-hard. Raise ValueError for one that is not valid."""
    made = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _threshold.fullmatch(part)
        if match is None or match[1] not in CONDITIONS:
            known = ", ".join(CONDITIONS)
            raise ValueError(
                f"{part} is not a threshold such as memory.available<100Mi or nodefs.available<5%: {known}"
            )
        made.append(Threshold(match[1], match[2]))
        made[-1].quantity_of(0)
    return made


class MachineSignals:
    """The signals of this machine. Images and pods are in the state directory of the node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self) -> Mapping[str, Signal]:
        disk = os.statvfs(self._directory)
        files = Signal(disk.f_frsize * disk.f_bavail, disk.f_frsize * disk.f_blocks)
        signals = {NODE_FILES: files, IMAGE_FILES: files}
        if disk.f_files:  # Some file systems do not count inodes.
            signals[NODE_INODES] = Signal(disk.f_favail, disk.f_files)
        memory = dict(_pairs(Path("/proc/meminfo").read_text()))
        if "MemAvailable" in memory:
            signals[MEMORY] = Signal(memory["MemAvailable"] << 10, memory["MemTotal"] << 10)
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
        signals[PIDS] = Signal(most - running, most)
        return signals


def _pairs(text: str) -> Sequence[tuple[str, int]]:
    rows = (line.split() for line in text.splitlines())
    return [(row[0].rstrip(":"), int(row[1])) for row in rows if len(row) >= 2]
