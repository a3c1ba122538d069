"""Pull policies and back-off: whether an image is pulled for a container now, and the reason if it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.node.errors import ImageFailure, ImageNeverPull, ImagePullBackOff
from pinnace.node.image_service import Image, ImageService, PullObserver, RegistryCredentials
from pinnace.node.images.references import parse_reference
from pinnace.process.clock import AlarmClock

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
    """Gets the images of containers.

    After a failure the same image waits 10 s for the same pod, then twice as long, up to 5 minutes. Another pod may
    have the right credentials: it does not wait.
    """

    def __init__(
        self,
        images: ImageService,
        clock: AlarmClock,
        observe: Callable[[str, float, int], None] = lambda pod, seconds, size: None,
    ) -> None:
        """`observe` is called after each pull, with the uid of the pod, the seconds and the size of the image."""
        self._images = images
        self._observe = observe
        self._clock = clock
        self._back_offs: dict[tuple[str, str], _BackOff] = {}

    async def get(
        self,
        name: str,
        policy: str,
        credentials: Sequence[RegistryCredentials] = (),
        listener: PullListener | None = None,
        *,
        pod: str = "",
    ) -> tuple[Image, bool]:
        """Return the image, and whether it was pulled. Raise ImageFailure with kubelet's reason.

        `pod` is the uid of the pod that needs it.
        """
        present = await self._images.find(name)
        if present is not None and (policy != "Always" or present.id.startswith("host:")):
            return present, False
        if policy == "Never":
            hint = self._images.hint(name)
            raise ImageNeverPull(
                f'Container image "{name}" is not present with pull policy of Never{"; " if hint else ""}{hint}'
            )
        waiting = self._back_offs.get((pod, name))
        if waiting is not None and (left := waiting.until - self._clock.monotonic()) > 0:
            raise ImagePullBackOff(f'Back-off pulling image "{name}": {waiting.message}', retry_seconds=left)
        if listener is not None:
            listener.begin()
        began = self._clock.monotonic()
        try:
            pulled = await self._images.pull(name, credentials, listener)
        except ImageFailure as error:
            error.retry_seconds = min(waiting.seconds * 2, _MOST_SECONDS) if waiting is not None else _FIRST_SECONDS
            until = self._clock.monotonic() + error.retry_seconds
            self._back_offs[pod, name] = _BackOff(error.retry_seconds, until, f"{error.reason}: {error}")
            raise
        self._back_offs.pop((pod, name), None)
        self._observe(pod, self._clock.monotonic() - began, pulled.size_bytes)
        return pulled, True

    def forget(self, pod: str) -> None:
        """Forget the failures of a pod that is gone."""
        for key in [key for key in self._back_offs if key[0] == pod]:
            del self._back_offs[key]
