"""The Protocol between a node and the images of its machine, shaped like CRI v1, and the root file systems of images.

`images` implements it. Every method raises RuntimeFailure or one of its subclasses, and nothing else that a caller must
expect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

HOST_PROGRAMS = "var/lib/host-programs"
"""The path of `ImageRoot.programs` in a container."""


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    """The credentials for one registry, as an imagePullSecret holds them."""

    username: str = ""
    password: str = ""


FindCredentials: TypeAlias = Callable[[str], Awaitable[Sequence[RegistryCredentials]]]
"""Returns the credentials of the machine for an image, named with its registry and without a tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """The defaults that an image gives to its containers."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Sequence[str] = ()
    working_directory: str = ""
    user: str = ""
    stop_signal: str = ""
    volumes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A present image. Its id is the digest of its configuration."""

    id: str
    tags: Sequence[str] = ()
    digests: Sequence[str] = ()
    """Names with the digest of the manifest: registry/name@sha256:…"""
    size_bytes: int = 0
    config: ImageConfig = ImageConfig()
    pulled_at: int = 0
    is_loaded: bool = False
    """Whether it comes from an archive, so that no registry may have it."""


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far one layer of a pull has come."""

    layer: str
    done_bytes: int
    total_bytes: int


class PullObserver(Protocol):
    def __call__(self, progress: PullProgress, /) -> None: ...


class ImageService(Protocol):
    """The images of one machine."""

    async def images(self) -> Sequence[Image]: ...

    async def find(self, name: str) -> Image | None:
        """The present image with this name or id. Raise InvalidImageName if it is none."""

    def hint(self, name: str) -> str:
        """Say how a node can have an absent image without a registry; empty if it cannot."""

    async def pull(
        self, name: str, credentials: Sequence[RegistryCredentials] = (), observer: PullObserver | None = None
    ) -> Image:
        """Pull an image, trying the credentials in order. Raise ImageFailure."""

    async def remove(self, name: str) -> None:
        """Remove a tag, or an image with all its tags by its id; and the layers that no other image needs."""

    async def collect(self, in_use: Collection[str], *, high_percent: int = 85, low_percent: int = 80) -> Sequence[str]:
        """Remove unused images if the disk is fuller than `high_percent`, and return their ids."""


@dataclass(frozen=True, slots=True)
class ImageRoot:
    """The unpacked layers of an image, the uppermost first; or the machine's own file system."""

    config: ImageConfig
    layers: Sequence[Path] = ()
    is_host: bool = False
    etc: Path | None = None
    """The directory that containers of this machine see as /etc."""
    programs: Path | None = None
    """A directory with programs that the machine itself lacks, shown as HOST_PROGRAMS."""


class ImageRoots(Protocol):
    async def root_of(self, image: str) -> ImageRoot:
        """Raise NotThere if no image has this id."""
