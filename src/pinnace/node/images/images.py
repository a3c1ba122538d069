"""The images of one machine: an `ImageService`, and the root file systems that the runtime mounts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.node.errors import ImageFailure, NotThere
from pinnace.node.image_service import Image, ImageConfig, ImageRoot, PullObserver, RegistryCredentials
from pinnace.node.images.archives import load_archive
from pinnace.node.images.downloads import Download
from pinnace.node.images.host import HOST, HOST_ID, HostImages, shows_host_image
from pinnace.node.images.manifests import Descriptor, parse_configuration
from pinnace.node.images.records import ImageRecord, ImageRecords
from pinnace.node.images.references import Reference, parse_reference
from pinnace.node.images.registries import AccessDenied, RegistryClient, try_all
from pinnace.node.images.unpacking import UnpackLimits
from pinnace.process.clock import AlarmClock

OFFLINE = "PINNACE_OFFLINE"
_LAYERS_AT_A_TIME = 3
_HOST_PREFIX = "host:"
_MAX_MESSAGE = 1_000


class Images:
    """An `ImageService` and an `ImageRoots`."""

    def __init__(
        self,
        directory: Path,
        clock: AlarmClock,
        *,
        is_offline: bool = False,
        has_host: bool | None = None,
        limits: UnpackLimits | None = None,
    ) -> None:
        """With `is_offline`, or PINNACE_OFFLINE=1 in the environment, only registries on loopback are asked.

        `has_host` says whether images may be this machine; None leaves it to PINNACE_HOST_IMAGE and the user.
        """
        self._records = ImageRecords(directory, limits=limits)
        self._clock = clock
        self._is_offline = is_offline or os.environ.get(OFFLINE, "") not in ("", "0")
        self._host = HostImages(directory, clock, is_available=shows_host_image(has_host))
        self._pulls = KeyedLocks()
        self._blobs = KeyedLocks()

    async def images(self) -> Sequence[Image]:
        return [_image(record) for record in self._records]

    async def find(self, name: str) -> Image | None:
        """The present image with this name or id: a stored one first, then this machine itself by the table."""
        record = self._records.find_whole(name)
        if record is not None:
            return _image(record)
        if name.startswith("sha256:"):
            return None
        reference = parse_reference(name)
        record = self._records.find_whole(_stored_name(reference))
        return _image(record) if record is not None else self._host_image(reference, name)

    async def prepare(self) -> None:
        """Make the /etc of this machine's containers before the first of them needs it."""
        if self._host.is_available:
            with contextlib.suppress(ImageFailure):  # The container that needs it reports the reason.
                await asyncio.to_thread(self._host.root, HOST)

    async def root_of(self, image: str) -> ImageRoot:
        if image.startswith(_HOST_PREFIX) or image == HOST_ID:
            return await asyncio.to_thread(self._host.root, image.removeprefix(_HOST_PREFIX))
        record = self._records.find_whole(image)
        if record is None:
            raise NotThere(f"there is no image {image}")
        self._records.touch(record, self._now())
        return ImageRoot(record.config, [self._records.layer(layer) for layer in reversed(record.layers)])

    async def load(self, file: Path) -> Sequence[Image]:
        """Add the images of an archive. Raise ImageFailure."""
        return [
            _image(record) for record in await asyncio.to_thread(load_archive, file, self._records, now=self._now())
        ]

    def hint(self, name: str) -> str:
        return self._host.hint(parse_reference(name))

    async def pull(
        self, name: str, credentials: Sequence[RegistryCredentials] = (), observer: PullObserver | None = None
    ) -> Image:
        reference = parse_reference(name)
        if reference.name == HOST:
            raise ImageFailure(f'failed to pull image "{name}": no registry has it; {self._host.hint(reference)}')
        async with self._pulls.hold(str(reference)):
            try:
                return _image(await self._pull(reference, credentials, observer))
            except ImageFailure as error:
                hint = self._host.hint(reference)
                text = _limit_message(str(error)) + ("; or " if hint else "") + hint
                error.args = (f'failed to pull and unpack image "{reference}": {text}',)
                raise
            except OSError as error:  # The disk is full, or another process has removed a file.
                raise ImageFailure(f'failed to pull and unpack image "{reference}": {error}') from error

    async def remove(self, name: str) -> None:
        record = self._records.find(name) or self._records.find(_stored_name(parse_reference(name)))
        if record is None:
            raise NotThere(f"there is no image {name}; `pinnace image ls` lists them")
        exact = name if name in (record.id, record.id.removeprefix("sha256:")) else str(parse_reference(name))
        await asyncio.to_thread(self._records.remove, exact)

    async def collect(self, in_use: Collection[str], *, high_percent: int = 85, low_percent: int = 80) -> Sequence[str]:
        """Remove unused images, the longest unused first, if the disk is fuller than `high_percent`.

        Stop when it is less full than `low_percent`. Return the ids of the removed images.
        """
        removed: list[str] = []
        if self._full_percent() < high_percent:
            return removed
        for record in sorted(self._records, key=lambda record: record.used_at):
            if self._full_percent() < low_percent:
                break
            if record.id not in in_use:
                await asyncio.to_thread(self._records.remove, record.id)
                removed.append(record.id)
        return removed

    # Inside

    def _host_image(self, reference: Reference, name: str) -> Image | None:
        image = self._host.find(reference)
        return None if image is None else Image(id=f"{_HOST_PREFIX}{name}", tags=image.tags, config=image.config)

    async def _pull(
        self, reference: Reference, credentials: Sequence[RegistryCredentials], observer: PullObserver | None
    ) -> ImageRecord:
        choices = try_all(credentials)
        for number, choice in enumerate(choices):
            try:
                async with RegistryClient(reference, choice, self._clock, is_offline=self._is_offline) as registry:
                    return await self._pull_from(registry, reference, observer)
            except AccessDenied:
                if number == len(choices) - 1:
                    raise
        raise AssertionError("there is always one choice")

    async def _pull_from(
        self, registry: RegistryClient, reference: Reference, observer: PullObserver | None
    ) -> ImageRecord:
        digest, manifest = await registry.manifest()
        configuration = parse_configuration(await registry.small_blob(manifest.config))
        if len(manifest.layers) != len(configuration.layers):
            raise ImageFailure(
                f"the image has {len(manifest.layers)} layers, but its configuration names {len(configuration.layers)}"
            )
        await self._pull_layers(registry, dict(zip(configuration.layers, manifest.layers, strict=True)), observer)
        record = ImageRecord(
            id=configuration.id,
            config=configuration.config,
            layers=configuration.layers,
            tags=[str(Reference(reference.registry, reference.repository, reference.tag))] if reference.tag else [],
            digests=[f"{reference.name}@{digest}"],
            size_bytes=sum(layer.size for layer in manifest.layers),
            pulled_at=self._now(),
            used_at=self._now(),
        )
        return self._records.save(record)

    async def _pull_layers(
        self, registry: RegistryClient, layers: Mapping[str, Descriptor], observer: PullObserver | None
    ) -> None:
        """Pull the layers that are missing. `layers` are the blobs by the digests of their content."""
        at_a_time = asyncio.Semaphore(_LAYERS_AT_A_TIME)
        failures: list[ImageFailure | OSError] = []
        tasks: list[asyncio.Task[None]] = []

        async def pull(layer: Descriptor, digest: str) -> None:
            try:
                async with at_a_time:
                    await self._pull_layer(registry, layer, digest, observer)
            except (ImageFailure, OSError) as error:
                # Not left to the TaskGroup: before Python 3.11.4 its caller would stay half cancelled.
                failures.append(error)
                for task in tasks:
                    task.cancel()

        lock = await asyncio.to_thread(self._records.share)
        try:
            async with asyncio.TaskGroup() as group:
                tasks += [group.create_task(pull(layer, digest)) for digest, layer in layers.items()]
        finally:
            os.close(lock)
        if failures:
            raise failures[0]

    async def _pull_layer(
        self, registry: RegistryClient, layer: Descriptor, digest: str, observer: PullObserver | None
    ) -> None:
        """Pull a layer unless it is present. Pulls of other images with the same blob wait for this one."""
        async with self._blobs.hold(layer.digest):
            if self._records.has_layer(digest):
                return
            async with Download(self._records.downloads, layer) as blob:
                await registry.fetch_blob(blob, observer)
                await self._unpack(blob.path, digest)

    async def _unpack(self, blob: Path, digest: str) -> None:
        """Unpack a layer in a thread. A cancelled pull waits for its end: the next one would fetch the blob again."""

        def unpack() -> None:
            with blob.open("rb") as file:
                self._records.add_layer(file, digest)

        work = asyncio.get_running_loop().run_in_executor(None, unpack)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait((work,))
            if not work.cancelled():
                work.exception()
            raise

    def _full_percent(self) -> float:
        usage = shutil.disk_usage(self._records.directory)
        return 100 * usage.used / (usage.used + usage.free)

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000) * 1000


def _stored_name(reference: Reference) -> str:
    return f"{reference.name}@{reference.digest}" if reference.digest else str(reference)


def _limit_message(message: str) -> str:
    """A message that a registry or an image has a part in, as a pod's status can have it."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in message[: _MAX_MESSAGE + 1])
    return printable if len(printable) <= _MAX_MESSAGE else f"{printable[:_MAX_MESSAGE]}…"


def _image(record: ImageRecord) -> Image:
    return Image(
        id=record.id,
        tags=record.tags,
        digests=record.digests,
        size_bytes=record.size_bytes,
        config=record.config if isinstance(record.config, ImageConfig) else ImageConfig(),
        pulled_at=record.pulled_at,
        is_loaded=record.is_loaded,
    )


@dataclass(slots=True)
class _KeyedLock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class KeyedLocks:
    """Locks by name that exist while they are held or waited for: one for each digest, one for each image.

    A holder that fails or is cancelled hands over to the next one that waits.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _KeyedLock] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @contextlib.asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        entry = self._entries.setdefault(key, _KeyedLock())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._entries[key]
