"""The last words of a container: a file that it writes, or the end of its log."""

from __future__ import annotations

import os
from pathlib import Path

from pinnace.model.typed_objects import Container
from pinnace.node.agent.containers.logs import text_of_lines
from pinnace.node.agent.containers.pod_files import open_regular, write_regular
from pinnace.node.runtime.runtime import ContainerStatus, Mount

_MOST_BYTES = 4096
_MOST_LOG_BYTES = 2048
_MOST_LOG_LINES = 80


def message_mount(directory: Path, container: Container, attempt: int) -> Mount:
    """Make the file for the message of a container, and return its mount."""
    path = write_regular(directory / "containers" / container["name"], f"message-{attempt}", b"", 0o666)
    return Mount(container_path=container.get("terminationMessagePath") or "/dev/termination-log", host_path=str(path))


def read_message(directory: Path, container: Container, ended: ContainerStatus) -> str:
    """Return the message of a container that has ended; empty if it has left none."""
    try:
        with open_regular(directory, f"containers/{container['name']}/message-{ended.config.attempt}") as file:
            message = file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        message = ""
    if not message and ended.exit_code != 0 and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        message = _tail(Path(ended.log_file))
    return message


def _tail(log: Path) -> str:
    try:
        with open_regular(log.parents[1], f"{log.parent.name}/{log.name}") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16 * _MOST_LOG_BYTES))
            lines = file.read(16 * _MOST_LOG_BYTES).splitlines(keepends=True)[-_MOST_LOG_LINES:]
    except OSError:
        return ""
    return text_of_lines(lines)[-_MOST_LOG_BYTES:].decode(errors="replace")
