"""Small JSON files that survive a crash: written beside, then renamed. The supervisors import this module."""

from __future__ import annotations

import json
import os
from typing import Any


def read_json(path: str) -> Any:
    with open(path, "rb") as file:
        return json.loads(file.read())


def write_json(path: str, content: Any) -> None:
    beside = f"{path}.new"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(content).encode())
    finally:
        os.close(fd)
    os.replace(beside, path)


def is_alive(pid: int, began: str) -> bool:
    """Whether the process with this id is the one that began then, and not a later one with the same id."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == began and fields[0] != "Z"
