"""The images of one machine: an `ImageService`, and the root file systems that the runtime mounts."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from pinnace.model.clock import AlarmClock
from pinnace.node.images.archives import load_archive
from pinnace.node.images.host import HOST_ID, HostImages
from pinnace.node.images.manifests import Configuration, Descriptor, Manifest, parse_configuration
from pinnace.node.images.records import ImageRecord, ImageRecords
from pinnace.node.images.references import Reference, parse_reference
from pinnace.node.images.registries import AccessDenied, RegistryClient, try_all
from pinnace.node.images.roots import ImageRoot
from pinnace.node.images.unpacking import UnpackLimits
from pinnace.node.runtime.errors import ImageFailure, NotThere
from pinnace.node.runtime.runtime import Image, ImageConfig, PullObserver, RegistryCredentials

OFFLINE = "PINNACE_OFFLINE"
_LAYERS_AT_A_TIME = 3
_HOST_PREFIX = "host:"


class Images:
    """An `ImageService` and an `ImageRoots`."""

    def __init__(
        self, directory: Path, clock: AlarmClock, *, is_offline: bool = False, limits: UnpackLimits | None = None
    ) -> None:
        """With `is_offline`, or PINNACE_OFFLINE=1 in the environment, only registries on loopback are asked."""
        self._records = ImageRecords(directory, limits=limits)
        self._clock = clock
        self._is_offline = is_offline or os.environ.get(OFFLINE, "") not in ("", "0")
        self._host = HostImages(directory)
        self._pulls: dict[str, asyncio.Lock] = {}

    async def images(self) -> Sequence[Image]:
        return [_image(record) for record in self._records]

    async def find(self, name: str) -> Image | None:
        """The present image with this name or id: a stored one first, then this machine itself by the table."""
        record = self._records.find(name)
        if record is not None:
            return _image(record)
        if name.startswith("sha256:"):
            return None
        reference = parse_reference(name)
        record = self._find(reference)
        return _image(record) if record is not None else self._host_image(reference, name)

    async def root_of(self, image: str) -> ImageRoot:
        if image.startswith(_HOST_PREFIX) or image == HOST_ID:
            programs = await asyncio.to_thread(self._host.programs)
            return ImageRoot(self._host.config_of(image.removeprefix(_HOST_PREFIX)), is_host=True, programs=programs)
        record = self._records.find(image)
        if record is None:
            raise NotThere(f"there is no image {image}")
        self._records.touch(record, self._now())
        return ImageRoot(record.config, [self._records.layer(layer) for layer in reversed(record.layers)])

    async def load(self, file: Path) -> Sequence[Image]:
        """Add the images of an archive. Raise ImageFailure."""
        return [_image(one) for one in await asyncio.to_thread(load_archive, file, self._records, now=self._now())]

    async def pull(
        self, name: str, credentials: Sequence[RegistryCredentials] = (), observer: PullObserver | None = None
    ) -> Image:
        reference = parse_reference(name)
        async with self._pulls.setdefault(str(reference), asyncio.Lock()):
            try:
                return _image(await self._pull(reference, credentials, observer))
            except ImageFailure as error:
                program = self._host.missing_program(reference)
                hint = f"; or install {program}: this machine then stands for the image" if program else ""
                error.args = (f'failed to pull and unpack image "{reference}": {error}{hint}',)
                raise

    async def remove(self, name: str) -> None:
        record = self._records.find(name) or self._find(parse_reference(name))
        if record is None:
            raise NotThere(f"there is no image {name}; `pinnace image ls` lists them")
        exact = name if name in (record.id, record.id.removeprefix("sha256:")) else str(parse_reference(name))
        await asyncio.to_thread(self._records.remove, exact)

    async def used_bytes(self) -> int:
        return sum(record.size_bytes for record in self._records)

    async def collect(self, in_use: Collection[str], *, high_percent: int = 85, low_percent: int = 80) -> Sequence[str]:
        """Remove unused images, the longest unused first, if the disk is fuller than `high_percent`.

        Stop when it is less full than `low_percent`. Return the ids of the removed images.
        """
        removed: list[str] = []
        if self._full_percent() < high_percent:
            return removed
        for record in sorted(self._records, key=lambda one: one.used_at):
            if self._full_percent() < low_percent:
                break
            if record.id not in in_use:
                await asyncio.to_thread(self._records.remove, record.id)
                removed.append(record.id)
        return removed

    # Inside

    def _find(self, reference: Reference) -> ImageRecord | None:
        name = f"{reference.name}@{reference.digest}" if reference.digest else str(reference)
        return self._records.find(name)

    def _host_image(self, reference: Reference, name: str) -> Image | None:
        found = self._host.find(reference)
        return None if found is None else Image(id=f"{_HOST_PREFIX}{name}", tags=found.tags, config=found.config)

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
        await self._pull_layers(registry, manifest, configuration, observer)
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
        self, registry: RegistryClient, manifest: Manifest, configuration: Configuration, observer: PullObserver | None
    ) -> None:
        at_a_time = asyncio.Semaphore(_LAYERS_AT_A_TIME)

        async def pull(layer: Descriptor, digest: str) -> None:
            async with at_a_time:
                if self._records.layer(digest).exists():
                    return
                blob = self._records.download(layer.digest)
                await registry.fetch_blob(layer, blob, observer)
                try:
                    await asyncio.to_thread(self._unpack, blob, digest)
                finally:
                    blob.unlink(missing_ok=True)

        wanted = dict(zip(configuration.layers, manifest.layers, strict=True))
        try:
            async with asyncio.TaskGroup() as group:
                for digest, layer in wanted.items():
                    group.create_task(pull(layer, digest))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _unpack(self, blob: Path, digest: str) -> None:
        with blob.open("rb") as file:
            self._records.add_layer(file, digest)

    def _full_percent(self) -> float:
        usage = shutil.disk_usage(self._records.directory)
        return 100 * usage.used / (usage.used + usage.free)

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000) * 1000


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
