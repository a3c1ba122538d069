"""The Events of a pull: its beginning, how far it has come every ten seconds, and its end."""

from __future__ import annotations

from typing import Literal

from pinnace.model.clock import AlarmClock
from pinnace.model.objects import Object
from pinnace.node.runtime.errors import (
    ImageFailure,
    ImageInspectFailed,
    ImageNeverPull,
    ImagePullBackOff,
    InvalidImageName,
)
from pinnace.node.runtime.runtime import Image, PullProgress
from pinnace.reconcile.events import EventRecorder

_PROGRESS_SECONDS = 10.0


class PullEvents:
    """A `PullListener` that records Events about one image of a pod."""

    def __init__(self, recorder: EventRecorder, clock: AlarmClock, pod: Object, image: str) -> None:
        self._recorder = recorder
        self._clock = clock
        self._pod = pod
        self._image = image
        self._began = clock.monotonic()
        self._reported = self._began
        self._layers: dict[str, PullProgress] = {}

    def begin(self) -> None:
        self._record("Pulling", f'Pulling image "{self._image}"')

    def __call__(self, progress: PullProgress, /) -> None:
        self._layers[progress.layer] = progress
        now = self._clock.monotonic()
        if now - self._reported < _PROGRESS_SECONDS:
            return
        self._reported = now
        done = sum(one.done_bytes for one in self._layers.values()) / 1e6
        total = sum(one.total_bytes for one in self._layers.values()) / 1e6
        self._record("Pulling", f'Pulling image "{self._image}": {done:.1f} of {total:.1f} MB of its layers so far')

    def end(self, image: Image) -> None:
        passed = int((self._clock.monotonic() - self._began) * 1000)
        took = f"{passed / 1000:g}s" if passed >= 1000 else f"{passed}ms"
        self._record(
            "Pulled",
            f'Successfully pulled image "{self._image}" in {took} ({took} including waiting). '
            f"Image size: {image.size_bytes} bytes.",
        )

    def already_present(self) -> None:
        self._record("Pulled", f'Container image "{self._image}" already present on machine')

    def fail(self, error: ImageFailure) -> None:
        """Report a failure as kubelet does: what happened to the image, then the reason of the container."""
        match error:
            case ImagePullBackOff():
                self._record("BackOff", f'Back-off pulling image "{self._image}"')
            case ImageNeverPull():
                self._record(error.reason, str(error), "Warning")
            case InvalidImageName():
                self._record("InspectFailed", str(error), "Warning")
            case ImageInspectFailed():
                self._record("InspectFailed", f'Failed to inspect image "{self._image}": {error}', "Warning")
            case _:
                self._record("Failed", f'Failed to pull image "{self._image}": {error}', "Warning")
        self._record("Failed", f"Error: {error.reason}", "Warning")

    def _record(self, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Normal") -> None:
        self._recorder.record(self._pod, kind, reason, message)
