"""The root file system of an image, as the runtime mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pinnace.node.runtime.runtime import ImageConfig


@dataclass(frozen=True, slots=True)
class ImageRoot:
    """The unpacked layers of an image, the uppermost first; or the machine's own file system."""

    config: ImageConfig
    layers: Sequence[Path] = ()
    is_host: bool = False
    programs: Path | None = None
    """A directory with programs that the machine itself lacks."""


class ImageRoots(Protocol):
    async def root_of(self, image: str) -> ImageRoot:
        """Raise NotThere if no image has this id."""
