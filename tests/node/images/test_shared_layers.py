"""Images that share layers are pulled at the same time: each blob is fetched once, whatever happens to a pull."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web
from tests.node.images.hostile_registry import Registry, serving
from tests.node.images.image_files import BuiltImage, digest, entry, layer

from pinnace.node.errors import ImageFailure
from pinnace.node.images.downloads import Download
from pinnace.node.images.images import Images
from pinnace.process.clock import SystemClock

COUNT = 17
SHARED = [layer(entry(f"shared{number}", os.urandom(300_000))) for number in range(3)]
IMAGES = {
    f"web{n}": BuiltImage([*SHARED, layer(entry("own", f"{n}".encode()))], {"User": f"{n}"}) for n in range(COUNT)
}
BASE = IMAGES["web0"].compressed[0]


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "images", SystemClock(), is_offline=True)


def _leftovers(tmp_path: Path) -> list[str]:
    names = [path.name for path in (tmp_path / "images/downloads").iterdir()]
    return names + [path.name for path in (tmp_path / "images/layers").iterdir() if ".new-" in path.name]


class Flaky(Registry):
    """Cuts, refuses and lies about the first requests for each shared blob."""

    def __init__(self) -> None:
        super().__init__(images=dict(IMAGES))
        self.whole: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._shared = {digest(blob): blob for blob in IMAGES["web0"].compressed[:3]}

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        blob = self._shared.get(name)
        if blob is None:
            return await super().__call__(request)
        self._tries[name] += 1
        match self._tries[name]:
            case 1:
                return web.Response(status=503)
            case 2:
                return await _cut(request, blob, 1000)
            case 3:
                return web.Response(body=bytes(len(blob)))
        begin = int(request.headers.get("Range", "bytes=0-")[6:-1])
        if not begin:
            self.whole[name] += 1
        return web.Response(body=blob[begin:], status=206 if begin else 200)


async def _cut(request: web.Request, blob: bytes, after: int) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(blob))})
    await response.prepare(request)
    await response.write(blob[:after])
    assert request.transport is not None
    request.transport.close()
    return response


async def test_many_images_share_layers_while_their_registry_fails(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete: Counter[str] = Counter()
    check = Download.check

    def count(download: Download) -> None:
        check(download)
        complete[download.descriptor.digest] += 1

    monkeypatch.setattr(Download, "check", count)
    registry = Flaky()
    failed = 0
    async with serving(registry) as address:
        pending = [*IMAGES, *IMAGES]
        for _ in range(5):
            names = pending
            results = await asyncio.gather(
                *(images.pull(f"{address}/{name}:v1") for name in names), return_exceptions=True
            )
            assert all(isinstance(result, ImageFailure) for result in results if isinstance(result, BaseException))
            pending = [name for name, result in zip(names, results, strict=True) if isinstance(result, BaseException)]
            failed += len(pending)
    assert not pending
    assert 0 < failed <= 4, "a lie costs the pull that meets it, and no other"
    assert set(complete.values()) == {1}, "each blob is fetched once"
    # A pull that meets a lie gives up its other downloads, too, before their first byte or after it.
    assert registry.whole and max(registry.whole.values()) <= 1 + failed
    assert len(list((tmp_path / "images/layers").iterdir())) == len(SHARED) + COUNT
    assert _leftovers(tmp_path) == []
    assert len(images._blobs) == len(images._pulls) == 0


async def test_a_cancelled_download_hands_over_to_the_next(images: Images, tmp_path: Path) -> None:
    ranges: list[str] = []
    is_begun, goes_on = asyncio.Event(), asyncio.Event()
    registry = Registry(images=dict(IMAGES))

    async def serve(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith(digest(BASE)):
            return await registry(request)
        ranges.append(request.headers.get("Range", ""))
        if not is_begun.is_set():
            response = web.StreamResponse(headers={"Content-Length": str(len(BASE))})
            await response.prepare(request)
            await response.write(BASE[:200_000])
            is_begun.set()
            await goes_on.wait()
            return response
        begin = int(ranges[-1][6:-1] or 0)
        return web.Response(body=BASE[begin:], status=206)

    async with serving(serve) as address:
        first = asyncio.ensure_future(images.pull(f"{address}/web0:v1"))
        await is_begun.wait()
        others = [asyncio.ensure_future(images.pull(f"{address}/web{number}:v1")) for number in range(1, 4)]
        while not list((tmp_path / "images/downloads").glob(f"{digest(BASE)[7:]}.*")) or not _part_size(tmp_path):
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        pulled = await asyncio.gather(*others)
        goes_on.set()
    assert {image.id for image in pulled} == {digest(IMAGES[f"web{number}"].configuration) for number in range(1, 4)}
    assert len(ranges) == 2 and ranges[1].startswith("bytes=") and ranges[1] != "bytes=0-", "it goes on where it was"
    assert _leftovers(tmp_path) == []


def _part_size(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "images/downloads").glob(f"{digest(BASE)[7:]}*"))


async def test_a_killed_pull_leaves_a_part_that_the_next_one_takes(tmp_path: Path) -> None:
    ranges: list[str] = []
    goes_on = asyncio.Event()
    registry = Registry(images=dict(IMAGES))

    async def serve(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith(digest(BASE)):
            return await registry(request)
        ranges.append(request.headers.get("Range", ""))
        if len(ranges) == 1:
            response = web.StreamResponse(headers={"Content-Length": str(len(BASE))})
            await response.prepare(request)
            await response.write(BASE[:200_000])
            await goes_on.wait()
            return response
        begin = int(ranges[-1][6:-1] or 0)
        return web.Response(body=BASE[begin:], status=206 if begin else 200)

    async with serving(serve) as address:
        command = [sys.executable, "-m", "pinnace.cli.main", "image", "pull", f"{address}/web0:v1", "--offline"]
        process = await asyncio.create_subprocess_exec(
            *command, "--directory", str(tmp_path), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        while (process.returncode is None and not (tmp_path / "images/downloads").is_dir()) or not _part_size(tmp_path):
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        goes_on.set()
        images = Images(tmp_path / "images", SystemClock(), is_offline=True)
        pulled = await images.pull(f"{address}/web0:v1")
    assert pulled.id == digest(IMAGES["web0"].configuration)
    assert ranges[0] == "" and ranges[1].startswith("bytes=") and len(ranges) == 2
    while _leftovers(tmp_path):  # A process that unpacked for the killed one ends by itself.
        await asyncio.sleep(0.01)


async def test_two_processes_fetch_the_same_blob_without_mixing_it(tmp_path: Path) -> None:
    registry = Registry(images=dict(IMAGES))
    every = [Images(tmp_path / "images", SystemClock(), is_offline=True) for _ in range(4)]
    async with serving(registry) as address:
        pulled = await asyncio.gather(*(images.pull(f"{address}/web1:v1") for images in every))
    assert len({image.id for image in pulled}) == 1
    assert _leftovers(tmp_path) == []


async def test_an_image_whose_layer_is_gone_is_pulled_again(images: Images, tmp_path: Path) -> None:
    async with serving(Registry(images=dict(IMAGES))) as address:
        name = f"{address}/web0:v1"
        await images.pull(name)
        next((tmp_path / "images/layers").iterdir()).rename(tmp_path / "away")
        assert await images.find(name) is None
        await images.pull(name)
        assert await images.find(name) is not None
