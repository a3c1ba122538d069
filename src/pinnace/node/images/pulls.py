"""Pull policies and back-off: whether an image is pulled for a container now, and the reason if it is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.model.clock import AlarmClock
from pinnace.node.images.references import parse_reference
from pinnace.node.runtime.errors import ImageFailure, ImageNeverPull, ImagePullBackOff
from pinnace.node.runtime.runtime import Image, ImageService, PullObserver, RegistryCredentials

_FIRST_SECONDS = 10.0
_MOST_SECONDS = 300.0


def default_policy(name: str) -> str:
    """The pull policy of a container that has none: Always for the tag latest, IfNotPresent for all others."""
    reference = parse_reference(name)
    return "Always" if reference.tag == "latest" and not reference.digest else "IfNotPresent"


@dataclass(slots=True)
class _BackOff:
    seconds: float
    until: float
    message: str


class PullListener(PullObserver, Protocol):
    """Follows the pull of one image."""

    def begin(self) -> None:
        """Called before the registry is asked, and not if the image is present or has to wait."""


class Pulls:
    """Gets the images of containers. After a failure the same image waits 10 s, then twice as long, up to 5 minutes."""

    def __init__(self, images: ImageService, clock: AlarmClock) -> None:
        self._images = images
        self._clock = clock
        self._back_offs: dict[str, _BackOff] = {}

    async def get(
        self,
        name: str,
        policy: str,
        credentials: Sequence[RegistryCredentials] = (),
        listener: PullListener | None = None,
    ) -> tuple[Image, bool]:
        """Return the image, and whether it was pulled. Raise ImageFailure with kubelet's reason."""
        present = await self._images.find(name)
        if present is not None and (policy != "Always" or present.id.startswith("host:")):
            return present, False
        if policy == "Never":
            raise ImageNeverPull(f'Container image "{name}" is not present with pull policy of Never')
        waiting = self._back_offs.get(name)
        if waiting is not None and self._clock.monotonic() < waiting.until:
            raise ImagePullBackOff(f'Back-off pulling image "{name}": {waiting.message}')
        if listener is not None:
            listener.begin()
        try:
            pulled = await self._images.pull(name, credentials, listener)
        except ImageFailure as error:
            self._note_failure(name, waiting, f"{error.reason}: {error}")
            raise
        self._back_offs.pop(name, None)
        return pulled, True

    def retry_in(self, name: str) -> float:
        """The seconds until the image may be pulled again."""
        waiting = self._back_offs.get(name)
        return max(0.0, waiting.until - self._clock.monotonic()) if waiting is not None else 0.0

    def _note_failure(self, name: str, waiting: _BackOff | None, message: str) -> None:
        seconds = min(waiting.seconds * 2, _MOST_SECONDS) if waiting is not None else _FIRST_SECONDS
        self._back_offs[name] = _BackOff(seconds, self._clock.monotonic() + seconds, message)
