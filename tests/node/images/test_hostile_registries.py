"""A registry is an enemy: whatever it answers, the pull ends with a reason, and credentials go where they belong."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.node.images.hostile_registry import Registry, serving
from tests.node.images.image_files import BuiltImage, digest, entry, layer
from yarl import URL

from pinnace.node.errors import ImageFailure
from pinnace.node.image_service import RegistryCredentials
from pinnace.node.images import registries
from pinnace.node.images.images import Images
from pinnace.node.images.registries import parse_location, parse_realm
from pinnace.process.clock import SystemClock

IMAGE = BuiltImage([layer(entry("file", b"content"))])
SECRET = base64.b64encode(b"user:secret").decode()
CREDENTIALS = [RegistryCredentials("user", "secret")]


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "images", SystemClock(), is_offline=True)


LOCATIONS = {
    "empty": ("", "redirects without a Location"),
    "bad port": ("http://127.0.0.1:99999999/x", "no valid URL"),
    "no number": ("http://127.0.0.1:port/x", "no valid URL"),
    "bad address": ("http://[::1/x", "no valid URL"),
    "bad name": ("http://\u2100/x", "no valid URL|is not encrypted|only http"),
    "file": ("file:///etc/shadow", "no valid URL"),
    "gopher": ("gopher://127.0.0.1:70/x", "only http and https"),
    "unix": ("unix:///run/docker.sock", "no valid URL"),
    "credentials": ("http://user:pass@127.0.0.1/", "has credentials in it"),
    "long": (f"http://127.0.0.1/{'a' * 8190}", "too long|does not answer"),
}


@pytest.mark.parametrize(("location", "message"), LOCATIONS.values(), ids=LOCATIONS)
async def test_a_malformed_redirect_is_a_failure_with_a_reason(images: Images, location: str, message: str) -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": location})

    async with serving(serve) as address:
        with pytest.raises(ImageFailure, match=message):
            await images.pull(f"{address}/web:v1")


async def test_a_redirect_loop_ends(images: Images) -> None:
    count = 0

    async def serve(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        return web.Response(status=302, headers={"Location": f"/again/{count}"})

    async with serving(serve) as address:
        with pytest.raises(ImageFailure, match="redirects more than 5 times"):
            await images.pull(f"{address}/web:v1")
    assert count == 5


CHALLENGES = {
    "none": "",
    "digest": 'Digest realm="x"',
    "no realm": 'Bearer service="x"',
    "file": 'Bearer realm="file:///etc/shadow"',
    "no host": 'Bearer realm="http:///token"',
    "bad port": 'Bearer realm="http://127.0.0.1:999999/"',
    "control characters": 'Bearer realm="http://127.0.0.1/\tx"',
    "credentials": 'Bearer realm="http://a:b@127.0.0.1/"',
    "another scheme": 'Bearer realm="ldap://127.0.0.1/"',
}


@pytest.mark.parametrize("challenge", CHALLENGES.values(), ids=CHALLENGES)
async def test_a_malformed_challenge_is_a_failure_with_a_reason(images: Images, challenge: str) -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    async with serving(serve) as address:
        with pytest.raises(ImageFailure, match=r"token server|not supported|access denied|does not answer"):
            await images.pull(f"{address}/web:v1", CREDENTIALS)


@pytest.mark.parametrize(
    "answer",
    [{"token": "a\r\nHost: other"}, {"token": 5}, {"token": ["x"]}, {"token": "x" * 70_000}, {"token": "é"}, [], "x"],
    ids=["header injection", "number", "list", "long", "not ASCII", "no object", "string"],
)
async def test_a_token_that_is_none_is_refused(images: Images, answer: Any) -> None:
    seen: list[Mapping[str, str]] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            return web.json_response(answer)
        seen.append(dict(request.headers))
        realm = f'Bearer realm="http://{request.host}/token"'
        return web.Response(status=401, headers={"WWW-Authenticate": realm})

    async with serving(serve) as address:
        with pytest.raises(ImageFailure, match=r"access denied|not a JSON object"):
            await images.pull(f"{address}/web:v1", CREDENTIALS)
    assert not any("Authorization" in headers for headers in seen)


async def test_a_server_behind_a_redirect_gets_no_credentials_although_it_asks(images: Images) -> None:
    """The registry stores its blobs elsewhere; that server answers 401 and names a token server of its own."""
    seen: list[str] = []

    async def thief(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})

    async with serving(thief) as other:
        registry = Registry(images={"web": IMAGE})

        async def serve(request: web.Request) -> web.StreamResponse:
            if request.headers.get("Authorization") != f"Basic {SECRET}":
                return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="registry"'})
            if "/blobs/" in request.path:
                return web.Response(status=307, headers={"Location": f"http://{other}/blob"})
            return await registry(request)

        async with serving(serve) as address:
            with pytest.raises(ImageFailure, match="access denied"):
                await images.pull(f"{address}/web:v1", CREDENTIALS)
    assert seen and not any(seen)


@pytest.mark.parametrize(
    "url",
    [
        "http://registry.example.com/x",
        "http://other.example.com/x",
        "https://127.0.0.1/x",
        "https://[::1]:8443/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://localhost/x",
        "https://app.localhost./x",
        "https://169.254.169.254/latest/meta-data",
        "https://[fe80::1%25eth0]/x",
        "https://0.0.0.0/x",
        "//127.0.0.1/x",
    ],
)
def test_a_remote_registry_leads_neither_to_this_machine_nor_out_of_tls(url: str) -> None:
    base = URL("https://registry.example.com/v2/web/")
    with pytest.raises(ImageFailure, match=r"not encrypted|address of this machine or its cloud|no valid URL"):
        parse_location(base, url)
    with pytest.raises(ImageFailure, match=r"not encrypted|address of this machine or its cloud|no valid URL"):
        parse_realm(base, f'Bearer realm="{url}"')


def test_a_remote_registry_may_lead_to_another_server_with_tls() -> None:
    base = URL("https://registry.example.com/v2/web/")
    assert str(parse_location(base, "https://cdn.example.net/blob?a=b%2Fc")) == "https://cdn.example.net/blob?a=b%2Fc"
    assert parse_location(base, "/other").host == "registry.example.com"
    realm, parameters = parse_realm(base, 'Bearer realm="https://auth.example.com/token",service="s",scope="x"')
    assert (realm.host, parameters["service"]) == ("auth.example.com", "s")


def _manifest(**fields: Any) -> bytes:
    return json.dumps({**json.loads(IMAGE.manifest), **fields}).encode()


def _index(*digests: str, **fields: Any) -> bytes:
    entries = [{"digest": name, "size": 5, "platform": {"os": "linux", "architecture": "amd64"}} for name in digests]
    kind = "application/vnd.oci.image.index.v1+json"
    return json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries, **fields}).encode()


def _config(**config: Any) -> bytes:
    document = json.loads(IMAGE.configuration)
    return json.dumps({**document, "config": config}).encode()


DEEP = b"[" * 2_000_000
A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
MANIFESTS: dict[str, tuple[bytes, str]] = {
    "nested arrays": (DEEP, "not valid JSON|not a JSON object"),
    "nested objects": (b'{"a":' * 700_000, "not valid JSON"),
    "null": (b"null", "not a JSON object"),
    "not UTF-8": (b'{"layers": "\xff"}', "not valid JSON|no list of layers"),
    "null layer": (_manifest(layers=[None]), "not an object"),
    "null config": (_manifest(config=None), "not an object"),
    "layers that are no list": (_manifest(layers={"a": 1}), "no list of layers"),
    "negative size": (_manifest(layers=[{"digest": A, "size": -1}]), "without a valid digest and size"),
    "boolean size": (_manifest(layers=[{"digest": A, "size": True}]), "without a valid digest and size"),
    "size of text": (_manifest(layers=[{"digest": A, "size": "5"}]), "without a valid digest and size"),
    "huge size": (_manifest(layers=[{"digest": A, "size": 1 << 62}]), "at most"),
    "digest of another kind": (_manifest(layers=[{"digest": "md5:00", "size": 1}]), "without a valid digest"),
    "digest with a path": (_manifest(layers=[{"digest": "sha256:../../x", "size": 1}]), "without a valid digest"),
    "digest with a line end": (_manifest(layers=[{"digest": A + "\n", "size": 1}]), "without a valid digest"),
    "too many layers": (_manifest(layers=[{"digest": A, "size": 1}] * 200), "at most 127"),
    "a layer that is no file system": (
        _manifest(
            layers=[{"digest": A, "size": 1, "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip"}]
        ),
        "no file system",
    ),
    "other media type": (_manifest(mediaType="text/html"), "not that of an image"),
    "media type of no text": (_manifest(mediaType=5), "not that of an image"),
    "media type of a list": (_manifest(mediaType=["x"]), "not that of an image"),
    "index of itself": (_index(A), "content of the digest"),
    "ambiguous": (_index(A, layers=[]), "ambiguous"),
    "platform of no text": (
        json.dumps({"manifests": [{"platform": {"os": ["x"], "architecture": {"a": 1}}}] * 500}).encode(),
        "no match for platform",
    ),
    "index of nothing": (_index(), "no match for platform"),
}


@pytest.mark.parametrize(("content", "message"), MANIFESTS.values(), ids=MANIFESTS)
async def test_a_hostile_manifest_is_refused_with_a_reason(
    images: Images, content: bytes, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(Registry(images={"good": IMAGE}, manifests={"web": content})) as address:
        with pytest.raises(ImageFailure, match=message) as caught:
            await images.pull(f"{address}/web:v1")
        assert len(str(caught.value)) < 1500 and str(caught.value).isprintable()
        assert (await images.pull(f"{address}/good:v1")).id == digest(IMAGE.configuration)
    assert not caplog.records


async def test_indexes_that_lead_on_and_on_are_refused(images: Images) -> None:
    registry = Registry()
    inner = IMAGE.manifest
    for _ in range(6):
        registry.manifests[digest(inner)] = inner
        inner = _index(digest(inner))
    registry.manifests["web"] = inner
    async with serving(registry) as address:
        with pytest.raises(ImageFailure, match="nested too deeply"):
            await images.pull(f"{address}/web:v1")
    assert len(registry.requests) == 4


CONFIGURATIONS: dict[str, tuple[bytes, str]] = {
    "user of another type": (_config(User={"a": 1}), "wrong value of User"),
    "working directory with NUL": (_config(WorkingDir="/a\0b"), "wrong value of WorkingDir"),
    "working directory of a list": (_config(WorkingDir=["/"]), "wrong value of WorkingDir"),
    "environment of numbers": (_config(Env=[5]), "wrong value of Env"),
    "environment with NUL": (_config(Env=["A=\0"]), "wrong value of Env"),
    "environment of text": (_config(Env="A=B"), "wrong value of Env"),
    "command of an object": (_config(Cmd={"a": 1}), "wrong value of Cmd"),
    "entrypoint with NUL": (_config(Entrypoint=["a\0"]), "wrong value of Entrypoint"),
    "volume with NUL": (_config(Volumes={"\0": {}}), "wrong value of Volumes"),
    "layers of another type": (b'{"rootfs": {"diff_ids": [5]}}', "diff_ids"),
    "another architecture": (b'{"os": "linux", "architecture": ["x"]}', "the image is for"),
    "no JSON": (b"\x00\x01", "not valid JSON"),
    "fewer layers": (b'{"rootfs": {"diff_ids": []}}', "its configuration names 0"),
}


@pytest.mark.parametrize(("configuration", "message"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
async def test_a_hostile_configuration_is_refused_with_a_reason(
    images: Images, configuration: bytes, message: str
) -> None:
    registry = Registry()
    registry.add_raw("web", configuration, IMAGE.compressed)
    async with serving(registry) as address:
        with pytest.raises(ImageFailure, match=message):
            await images.pull(f"{address}/web:v1")


async def test_variables_without_a_name_or_value_are_left_out(images: Images) -> None:
    registry = Registry()
    registry.add_raw("web", _config(Env=["ALONE", "=x", "A=b=c"]), IMAGE.compressed)
    async with serving(registry) as address:
        assert (await images.pull(f"{address}/web:v1")).config.environment == ["A=b=c"]


async def test_an_endless_answer_is_cut(images: Images) -> None:
    sent = 0

    async def serve(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while sent < 1 << 30:
                await response.write(bytes(1 << 16))
                sent += 1 << 16
        except ConnectionError:
            pass
        return response

    async with serving(serve) as address:
        with pytest.raises(ImageFailure, match="sends more than"):
            await images.pull(f"{address}/web:v1")
    assert sent < 64 << 20


async def test_an_endless_layer_is_cut_at_the_size_of_the_manifest(images: Images, tmp_path: Path) -> None:
    registry = Registry(images={"web": IMAGE}, blobs={digest(IMAGE.compressed[0]): bytes(10_000_000)})
    async with serving(registry) as address:
        with pytest.raises(ImageFailure, match="is longer than its"):
            await images.pull(f"{address}/web:v1")
    assert list((tmp_path / "images/downloads").iterdir()) == []


async def test_a_registry_that_drips_is_given_up(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never falls silent for long, and never ends."""
    monkeypatch.setattr(registries, "_DOCUMENT_SECONDS", 0.3)
    monkeypatch.setattr(registries, "_TRIES", 2)
    drops = 0

    async def serve(request: web.Request) -> web.StreamResponse:
        nonlocal drops
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for _ in range(10_000):
                await response.write(b" ")
                drops += 1
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        return response

    async with serving(serve) as address:
        with pytest.raises(ImageFailure, match="does not answer"):
            await images.pull(f"{address}/web:v1")
    assert 0 < drops < 5_000
