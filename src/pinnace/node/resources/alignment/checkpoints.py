"""The files in which the managers keep what they have given, in kubelet's format with its checksum.

A file survives `kill -9`. One that was changed by hand, or that another policy wrote, is refused: containers may run
with resources that it no longer names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pinnace.node.errors import RuntimeFailure

_MOST_BYTES = 16 << 20
_FIRST, _PRIME = 0x811C9DC5, 0x01000193


class CheckpointRefused(RuntimeFailure):
    """A checkpoint cannot be used; the message is kubelet's, with what to do."""


class Checkpoint:
    """A file of one manager, such as cpu_manager_state."""

    def __init__(self, file: Path, manager: str) -> None:
        """`manager` is its name in the message of an error, such as CPU manager."""
        self.file = file
        self._manager = manager

    def refuse(self, reason: str) -> CheckpointRefused:
        return CheckpointRefused(
            f"could not restore state from checkpoint: {reason}, please drain this node and delete the {self._manager} "
            f'checkpoint file "{self.file}" before restarting Kubelet'
        )

    def load(self) -> dict[str, Any] | None:
        """Return the data; None if there is no file. Raise CheckpointRefused."""
        try:
            with self.file.open("rb") as opened:
                content = json.loads(opened.read(_MOST_BYTES))
            text, checksum = content["data"], content["dataChecksum"]
            if checksum_of(text) != checksum:
                raise self.refuse("checkpoint is corrupted")
            data = json.loads(text)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.refuse("checkpoint is corrupted") from error
        if not isinstance(data, dict):
            raise self.refuse("checkpoint is corrupted")
        return data

    def save(self, data: dict[str, Any]) -> None:
        """Replace the file. Raise OSError; the old file is whole then."""
        text = json.dumps(data, separators=(",", ":"))
        content = {**data, "checksum": 0, "data": text, "dataChecksum": checksum_of(text)}
        beside = self.file.with_suffix(".new")
        with open(beside, "w", opener=_private) as opened:
            json.dump(content, opened, separators=(",", ":"))
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(self.file)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def checksum_of(text: str) -> int:
    """Return kubelet's checksum of a text: FNV-1a of the text after the name of its type in Go."""
    checksum = _FIRST
    for byte in f"(string){text}".encode():
        checksum = (checksum ^ byte) * _PRIME & 0xFFFFFFFF
    return checksum
