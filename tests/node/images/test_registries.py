"""Pulls from a real registry on loopback, and from servers that lie, hang, cut connections or ask for tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from tests.node.images.hostile_registry import serving
from tests.node.images.image_files import BuiltImage, digest, entry, index_of, layer
from tests.node.images.local_registry import LocalRegistry

from pinnace.node.errors import ImageFailure, ImageNeverPull, ImagePullBackOff, RegistryUnavailable
from pinnace.node.image_service import PullProgress, RegistryCredentials
from pinnace.node.images import registries
from pinnace.node.images.images import Images
from pinnace.node.images.manifests import own_platform
from pinnace.node.images.pulls import Pulls, default_policy
from pinnace.node.images.unpacking import UnpackLimits
from pinnace.process.clock import SystemClock
from pinnace.testing.clock import ManualClock

IMAGE = BuiltImage([layer(entry(f"file{n}", b"content" * 1000)) for n in range(5)], {"Cmd": ["serve"]})
OTHER = BuiltImage([layer(entry("other", b"x"))], architecture="mips")


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "images", SystemClock(), is_offline=True)


async def test_an_image_is_pulled_with_progress(images: Images, registry: LocalRegistry) -> None:
    registry.push("web", IMAGE)
    registry.push_manifest("web", "v1", IMAGE.manifest)
    seen: list[PullProgress] = []
    pulled = await images.pull(f"{registry.address}/web:v1", observer=seen.append)
    assert pulled.id == digest(IMAGE.configuration)
    assert list(pulled.digests) == [f"{registry.address}/web@{digest(IMAGE.manifest)}"]
    assert {layer.layer for layer in seen if layer.done_bytes == layer.total_bytes} == {
        digest(layer) for layer in IMAGE.compressed
    }
    root = await images.root_of(pulled.id)
    assert [next(path.iterdir()).name for path in root.layers] == ["file4", "file3", "file2", "file1", "file0"]
    by_digest = await images.find(f"{registry.address}/web@{digest(IMAGE.manifest)}")
    assert by_digest is not None and by_digest.id == pulled.id


async def test_an_image_with_zstd_layers_is_pulled(images: Images, registry: LocalRegistry) -> None:
    image = replace(IMAGE, compression="zstd")
    registry.push("zstd", image)
    registry.push_manifest("zstd", "v1", image.manifest)
    pulled = await images.pull(f"{registry.address}/zstd:v1")
    assert pulled.id == digest(IMAGE.configuration)
    root = await images.root_of(pulled.id)
    assert (root.layers[0] / "file4").read_bytes() == b"content" * 1000


async def test_the_manifest_for_this_machine_is_chosen(images: Images, registry: LocalRegistry) -> None:
    for image in (OTHER, IMAGE):
        registry.push("many", image)
    registry.push_manifest("many", "v1", index_of(OTHER, IMAGE), "index")
    pulled = await images.pull(f"{registry.address}/many:v1")
    assert pulled.id == digest(IMAGE.configuration)
    assert list(pulled.digests) == [f"{registry.address}/many@{digest(index_of(OTHER, IMAGE))}"]


async def test_an_image_without_this_platform_is_refused(images: Images, registry: LocalRegistry) -> None:
    registry.push("foreign", OTHER)
    registry.push_manifest("foreign", "v1", index_of(OTHER), "index")
    with pytest.raises(
        ImageFailure, match=f"no match for platform in manifest: this machine is {'/'.join(own_platform())}"
    ):
        await images.pull(f"{registry.address}/foreign:v1")


async def test_a_missing_image_is_not_found(images: Images, registry: LocalRegistry) -> None:
    name = f"{registry.address}/nothing:v1"
    with pytest.raises(ImageFailure) as caught:
        await images.pull(name)
    assert str(caught.value) == (
        f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": {name}: not found'
    )
    assert caught.value.reason == "ErrImagePull"


async def test_a_damaged_layer_is_refused(images: Images, registry: LocalRegistry, tmp_path: Path) -> None:
    image = BuiltImage([layer(entry("damaged", b"y" * 3000))])
    registry.push("damaged", image)
    registry.push_manifest("damaged", "v1", image.manifest)
    blob = registry.blob_file(image.compressed[0])
    blob.write_bytes(bytes(len(image.compressed[0])))
    with pytest.raises(ImageFailure, match="with content of the digest"):
        await images.pull(f"{registry.address}/damaged:v1")
    assert await images.images() == []
    assert list((tmp_path / "images/downloads").iterdir()) == []


async def test_a_bomb_is_refused(registry: LocalRegistry, tmp_path: Path) -> None:
    image = BuiltImage([layer(entry("zeros", bytes(5_000_000)))])
    registry.push("bomb", image)
    registry.push_manifest("bomb", "v1", image.manifest)
    images = Images(tmp_path / "images", SystemClock(), limits=UnpackLimits(bytes=1_000_000))
    with pytest.raises(ImageFailure, match="decompression bomb"):
        await images.pull(f"{registry.address}/bomb:v1")
    assert list((tmp_path / "images/layers").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["example.com/web:v1", "unknown-program:v1", "192.0.2.7:5000/web", "localhost.example.com/x"]
)
async def test_offline_refuses_every_registry_but_loopback(images: Images, name: str) -> None:
    with pytest.raises(ImageFailure, match="PINNACE_OFFLINE=1 or --offline allows pulls from loopback alone"):
        await images.pull(name)


async def test_a_failed_pull_names_the_program_with_which_this_machine_stands_for_the_image(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *args, **options: None)
    with pytest.raises(ImageFailure, match=r"; or install nginx: this machine then stands for the image$"):
        await images.pull("nginx:1.25")
    with pytest.raises(ImageFailure, match=r"`pinnace image load FILE`$"):
        await images.pull("luksa/website-controller")


async def test_the_environment_switches_pulls_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINNACE_OFFLINE", "1")
    with pytest.raises(ImageFailure, match="is refused"):
        await Images(tmp_path / "images", SystemClock()).pull("example.com/web:v1")


# Servers that no real registry is


async def _answer(request: web.Request) -> web.Response:
    """Serve IMAGE as any repository."""
    name = request.path.rpartition("/")[2]
    if "/manifests/" in request.path:
        return web.Response(body=IMAGE.manifest)
    return web.Response(body=next(blob for blob in IMAGE.blobs if digest(blob) == name))


async def test_a_cut_layer_goes_on_where_it_was_cut(images: Images) -> None:
    ranges: list[str] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if name != digest(IMAGE.compressed[0]):
            return await _answer(request)
        data = IMAGE.compressed[0]
        ranges.append(request.headers.get("Range", ""))
        if not ranges[-1]:
            cut = web.StreamResponse(headers={"Content-Length": str(len(data))})
            await cut.prepare(request)
            await cut.write(data[:20])
            assert request.transport is not None
            request.transport.close()
            return cut
        return web.Response(body=data[20:], status=206)

    async with serving(serve) as address:
        pulled = await images.pull(f"{address}/web:v1")
    assert pulled.id == digest(IMAGE.configuration)
    assert ranges == ["", "bytes=20-"]


async def test_a_token_is_asked_for_and_credentials_go_to_the_token_server_alone(images: Images) -> None:
    secret = base64.b64encode(b"user:right").decode()
    seen: list[tuple[str, str]] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        seen.append((request.path, authorization))
        if request.path == "/token":
            is_right = authorization == f"Basic {secret}" and request.query["scope"] == "repository:private/web:pull"
            return web.json_response({"token": "good"}, status=200 if is_right else 401)
        if authorization != "Bearer good":
            realm = f'Bearer realm="http://{request.host}/token",service="test",scope="repository:private/web:pull"'
            return web.Response(status=401, headers={"WWW-Authenticate": realm})
        return await _answer(request)

    async with serving(serve) as address:
        name = f"{address}/private/web:v1"
        with pytest.raises(
            ImageFailure, match="pull access denied, repository does not exist or may require authorization"
        ):
            await images.pull(name, [RegistryCredentials("user", "wrong")])
        seen.clear()
        choices = [RegistryCredentials("user", "wrong"), RegistryCredentials("user", "right")]
        assert (await images.pull(name, choices)).id == digest(IMAGE.configuration)
    assert all(path == "/token" for path, authorization in seen if authorization.startswith("Basic"))


async def test_a_redirect_off_the_machine_is_refused_offline(images: Images) -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "https://example.com/blob"})

    async with serving(serve) as address:
        with pytest.raises(ImageFailure, match=r"from example\.com is refused"):
            await images.pull(f"{address}/web:v1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"{", "is not valid JSON", id="broken"),
        pytest.param(b"[]", "is not a JSON object", id="list"),
        pytest.param(b"{}", "no list of layers", id="empty"),
        pytest.param(b" " * (5 << 20), "sends more than", id="huge"),
        pytest.param(b'{"layers": [{"digest": "../../x", "size": 1}]}', "without a valid digest", id="path as digest"),
        pytest.param(json.dumps({"schemaVersion": 1}).encode(), "schema version 1", id="schema 1"),
    ],
)
async def test_a_registry_that_sends_nonsense_is_refused(images: Images, content: bytes, message: str) -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        return web.Response(body=content)

    async with serving(serve) as address:
        with pytest.raises(ImageFailure, match=message):
            await images.pull(f"{address}/web:v1")


async def test_a_manifest_with_another_digest_is_refused(images: Images) -> None:
    async with serving(_answer) as address:
        with pytest.raises(ImageFailure, match="answers with other content"):
            await images.pull(f"{address}/web@sha256:{'a' * 64}")


async def test_a_registry_that_does_not_listen_is_unavailable(images: Images) -> None:
    async with serving(_answer) as address:
        pass
    with pytest.raises(
        RegistryUnavailable, match=r"does not answer: .*; without it, load the image with `pinnace image load FILE`"
    ):
        await images.pull(f"{address}/web:v1")


async def test_a_registry_that_hangs_is_unavailable(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "_SILENT_SECONDS", 0.1)
    hanging = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        await hanging.wait()
        return web.Response()

    async with serving(hang) as address:
        with pytest.raises(RegistryUnavailable, match=r"does not answer"):
            await images.pull(f"{address}/web:v1")
        hanging.set()


async def test_two_pulls_of_one_image_are_one(images: Images) -> None:
    blobs: list[str] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        if "/blobs/" in request.path:
            blobs.append(request.path)
        return await _answer(request)

    async with serving(serve) as address:
        await asyncio.gather(*(images.pull(f"{address}/web:v1") for _ in range(3)))
    layers = [path for path in blobs if not path.endswith(digest(IMAGE.configuration))]
    assert len(layers) == len(IMAGE.layers)


# Policies


async def test_the_policy_decides_whether_to_pull(images: Images) -> None:
    pulls = Pulls(images, SystemClock())
    requests: list[str] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        requests.append(request.path)
        return await _answer(request)

    async with serving(serve) as address:
        name = f"{address}/web:v1"
        with pytest.raises(ImageNeverPull, match=f'Container image "{name}" is not present with pull policy of Never'):
            await pulls.get(name, "Never")
        assert requests == []
        assert (await pulls.get(name, "IfNotPresent"))[1]
        assert not (await pulls.get(name, "IfNotPresent"))[1]
        assert (await pulls.get(name, "Always"))[1]
        assert not (await pulls.get(name, "Never"))[1]


async def test_a_failed_pull_waits_longer_each_time(images: Images) -> None:
    clock = ManualClock()
    pulls = Pulls(images, clock)
    waits = []
    for _ in range(7):
        with pytest.raises(ImageFailure, match="is refused"):
            await pulls.get("example.com/web:v1", "Always")
        with pytest.raises(ImagePullBackOff, match="Back-off pulling image") as raised:
            await pulls.get("example.com/web:v1", "Always")
        waits.append(raised.value.retry_seconds)
        with pytest.raises(ImageFailure, match="is refused"):
            await pulls.get("example.com/web:v1", "Always", pod=f"other-{len(waits)}")
        await clock.advance(waits[-1])
    assert waits == [10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("web", "Always"),
        ("web:latest", "Always"),
        ("web:v1", "IfNotPresent"),
        (f"web@sha256:{'a' * 64}", "IfNotPresent"),
    ],
)
def test_the_default_policy_follows_the_tag(name: str, policy: str) -> None:
    assert default_policy(name) == policy
