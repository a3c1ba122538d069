"""The last words of a container: a file that it writes, or the end of its log."""

from __future__ import annotations

from pathlib import Path

from pinnace.model.objects import Object
from pinnace.node.agent.logs import text_of_lines
from pinnace.node.runtime.runtime import ContainerStatus, Mount

_MOST_BYTES = 4096
_MOST_LOG_BYTES = 2048
_MOST_LOG_LINES = 80


def message_mount(directory: Path, container: Object, attempt: int) -> Mount:
    """Make the file for the message of a container, and return its mount."""
    path = _file(directory, container["name"], attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o666)
    return Mount(container_path=container.get("terminationMessagePath") or "/dev/termination-log", host_path=str(path))


def read_message(directory: Path, container: Object, ended: ContainerStatus) -> str:
    """Return the message of a container that has ended; empty if it has left none."""
    try:
        with _file(directory, container["name"], ended.config.attempt).open("rb") as file:
            found = file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        found = ""
    if not found and ended.exit_code != 0 and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        found = _tail(Path(ended.log_file))
    return found


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16 * _MOST_LOG_BYTES))
            lines = file.read().splitlines(keepends=True)[-_MOST_LOG_LINES:]
    except OSError:
        return ""
    return text_of_lines(lines)[-_MOST_LOG_BYTES:].decode(errors="replace")


def _file(directory: Path, name: str, attempt: int) -> Path:
    return directory / "containers" / name / f"message-{attempt}"
