"""Published attacks of the last eight years on the images of containerd, Docker, Podman, BuildKit, umoci and tarfile.

Each row is tried with an image from a registry on loopback. The file `outside` beside the images is what an attack
wants to reach; it must be as before, and the next image must be pulled.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import struct
import tarfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.node.images.hostile_registry import Registry, serving
from tests.node.images.image_files import BuiltImage, Entry, digest, directory, entry, layer, link

from pinnace.node.errors import ImageFailure
from pinnace.node.image_service import Image, RegistryCredentials
from pinnace.node.images.images import Images
from pinnace.node.images.unpacking import UnpackLimits
from pinnace.process.clock import SystemClock

GOOD = BuiltImage([layer(entry("good", b"good"))])
ACCEPTED = ""
"""The image is harmless in the form in which it is stored."""


@dataclass
class Place:
    """Images beside a file that no image may reach."""

    top: Path
    images: Images
    registry: Registry
    address: str = ""

    @property
    def outside(self) -> Path:
        return self.top / "outside"

    async def pull(self, name: str) -> Image:
        return await self.images.pull(f"{self.address}/{name}:v1", [RegistryCredentials("user", "secret")])

    async def layers(self, name: str) -> list[Path]:
        image = await self.images.find(f"{self.address}/{name}:v1")
        assert image is not None
        return list((await self.images.root_of(image.id)).layers)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    (tmp_path / "outside").mkdir(mode=0o700)
    (tmp_path / "outside/file").write_text("kept")
    (tmp_path / "outside/file").chmod(0o600)
    limits = UnpackLimits(bytes=50_000_000, entries=10_000)
    images = Images(tmp_path / "images", SystemClock(), is_offline=True, limits=limits)
    made = Place(tmp_path, images, Registry(images={"good": GOOD}))
    async with serving(made.registry) as address:
        made.address = address
        yield made
    by_name = {path.name: (stat.S_IMODE(path.stat().st_mode), path.read_text()) for path in made.outside.iterdir()}
    assert by_name == {"file": (0o600, "kept")}
    assert stat.S_IMODE(made.outside.stat().st_mode) == 0o700
    assert {path.name for path in tmp_path.iterdir()} == {"outside", "images"}


def _xattrs(**names: str) -> dict[str, Any]:
    return {"pax_headers": {f"SCHILY.xattr.{name.replace('_', '.')}": value for name, value in names.items()}}


def _raw_header(size: bytes) -> bytes:
    """A header with a size field of one's own, and its checksum."""
    header = bytearray(tarfile.TarInfo("file").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _pax(content: bytes) -> bytes:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, len(content)
    padding = bytes(-len(content) % 512)
    return info.tobuf(tarfile.GNU_FORMAT) + content + padding + tarfile.TarInfo("x").tobuf() + bytes(1024)


OUT = "../../../outside"
LAYERS: dict[str, tuple[Callable[[Path], list[Entry] | bytes], str]] = {
    "CVE-2018-1002207 a path that climbs (zip slip)": (lambda _: [entry(f"{OUT}/new", b"x")], "leads out of the image"),
    "CVE-2020-10696 absolute path (buildah)": (lambda at: [entry(f"{at}/new", b"x")], ACCEPTED),
    "CVE-2019-10152 a path through a link (podman cp)": (
        lambda at: [link("up", str(at)), entry("up/new", b"x")],
        "leads nowhere",
    ),
    "CVE-2021-29136 the root is a link (umoci)": (
        lambda at: [link(".", str(at)), entry("new", b"x")],
        "not a directory",
    ),
    "CVE-2021-29136 the root is a link, spelt otherwise": (
        lambda at: [link("./", str(at)), entry("new", b"x")],
        "not a directory",
    ),
    "CVE-2021-32760 chmod by a hard link to a link (containerd)": (
        lambda at: [
            link("s", str(at / "file")),
            entry("h", type=tarfile.LNKTYPE, linkname="s", mode=0o777),
            entry("h", type=tarfile.LNKTYPE, linkname="s", mode=0o4777),
        ],
        ACCEPTED,
    ),
    "CVE-2021-41089 chmod of a directory by a link (docker cp)": (
        lambda at: [directory("d", 0o777), link("d", str(at)), directory("d/", 0o777)],
        ACCEPTED,
    ),
    "CVE-2024-9676 /etc/passwd is a link (containers/storage)": (
        lambda at: [directory("etc"), link("etc/passwd", str(at / "file"))],
        ACCEPTED,
    ),
    "CVE-2025-47290 a directory becomes a link while it is unpacked (containerd)": (
        lambda at: [directory("a/b"), link("a/b", str(at)), entry("a/b/new", b"x")],
        "leads nowhere",
    ),
    "CVE-2024-1753 a link in place of a mount point (buildah)": (
        lambda at: [link("proc", str(at)), link("dev", "/")],
        ACCEPTED,
    ),
    "CVE-2019-14271 libraries of the image (docker cp)": (
        lambda _: [entry("lib/libnss_files.so.2", b"\x7fELF"), entry("etc/nsswitch.conf", b"passwd: files\n")],
        ACCEPTED,
    ),
    "a hard link to a file of the machine": (lambda at: [link("h", str(at / "file"), hard=True)], "is a hard link to"),
    "a whiteout that climbs": (lambda _: [entry(f"{OUT}/.wh.file")], "leads out of the image"),
    "a whiteout through a link": (lambda at: [link("up", str(at)), entry("up/.wh.file")], "leads nowhere"),
    "a whiteout of the parent": (lambda _: [entry("a/.wh..."), entry("a/.wh...wh...")], "hides nothing"),
    "an opaque whiteout through a link": (lambda at: [link("up", str(at)), entry("up/.wh..wh..opq")], "leads nowhere"),
    "files below a whiteout": (lambda _: [entry(".wh.a/b", b"x")], "below a whiteout"),
    "metadata of aufs": (lambda _: [entry(".wh..wh.plnk/1.2", b"x")], "below a whiteout"),
    "device nodes": (
        lambda _: [entry("sda", type=tarfile.BLKTYPE, devmajor=254), entry("m", type=tarfile.CHRTYPE)],
        ACCEPTED,
    ),
    "overlay redirects and opaqueness": (
        lambda _: [
            entry(
                "d",
                type=tarfile.DIRTYPE,
                mode=0o755,
                **_xattrs(user_overlay_redirect="/..", user_overlay_opaque="y"),
            ),
            entry(
                "f", b"x", **_xattrs(user_overlay_metacopy="", trusted_overlay_redirect="/", security_capability="x")
            ),
        ],
        ACCEPTED,
    ),
    "a user above all numbers": (
        lambda _: [entry("f", b"x", pax_headers={"uid": str(1 << 40)})],
        "which no system has",
    ),
    "the user that the kernel takes for none": (
        lambda _: [entry("f", b"x", pax_headers={"uid": str((1 << 32) - 1)})],
        "which no system has",
    ),
    "a negative user": (lambda _: [entry("f", b"x", pax_headers={"uid": "-1"})], "which no system has"),
    "times that no clock has": (
        lambda _: [entry("f", b"x", pax_headers={"mtime": "1e300"}), entry("g", b"", pax_headers={"mtime": "-1e300"})],
        ACCEPTED,
    ),
    "a time that is no number": (lambda _: [entry("f", b"x", pax_headers={"mtime": "nan"})], "not a valid"),
    "a name of 300 letters": (lambda _: [entry("n" * 300, b"x")], "File name too long"),
    "a path of 20,000 parts": (lambda _: [entry("a/" * 10_000 + "f", b"x")], "at most 256"),
    "an extended header of 100 kB": (lambda _: [entry("a" * 100_000, b"x")], "extended header"),
    "a name with NUL": (
        lambda _: [entry("f", b"x", pax_headers={"path": "a\0b"})],
        "leads out of the image|not a valid",
    ),
    "a sparse file": (lambda _: [entry("f", type=tarfile.GNUTYPE_SPARSE)], "sparse|not a valid|unknown"),
    "CVE-2017-14992 a decompression bomb": (lambda _: [entry("zeros", bytes(60_000_000))], "decompression bomb"),
    "a bomb of entries": (lambda _: [entry("f") for _ in range(10_001)], "more than 10000 entries"),
    "CVE-2019-20907 an extended header of length 0 (tarfile)": (lambda _: _pax(b"0 a=b\n"), "not a valid archive"),
    "CVE-2024-6232 digits that a search goes over again and again (tarfile)": (
        lambda _: _pax(b"0" * 30_000),
        "not a valid archive",
    ),
    "CVE-2025-8194 a negative size (tarfile)": (
        lambda _: _raw_header(b"\xff" * 4 + struct.pack(">q", -512)) + bytes(1024),
        "has the size -",
    ),
    "a negative size in an extended header": (
        lambda _: [entry("f", b"x", pax_headers={"size": "-1024"})],
        "has the size|not a valid archive",
    ),
    "a broken header after a file": (lambda _: layer(entry("f"))[:512] + b"x" * 512 + bytes(1024), "invalid header"),
    "half a header after a file": (lambda _: layer(entry("f"))[:512] + b"x" * 256, "truncated header"),
}


@pytest.mark.parametrize(("build", "message"), LAYERS.values(), ids=LAYERS)
async def test_a_hostile_layer_reaches_nothing(
    place: Place, build: Callable[[Path], list[Entry] | bytes], message: str
) -> None:
    made = build(place.outside)
    place.registry.images["evil"] = BuiltImage([made if isinstance(made, bytes) else layer(*made)])
    if message == ACCEPTED:
        await place.pull("evil")
        (unpacked,) = await place.layers("evil")
        for path in [unpacked, *unpacked.rglob("*")]:
            assert not stat.S_ISBLK(path.lstat().st_mode) and not stat.S_ISCHR(path.lstat().st_mode)
            assert os.listxattr(path, follow_symlinks=False) == []
    else:
        with pytest.raises(ImageFailure, match=message):
            await place.pull("evil")
        assert list((place.top / "images/layers").iterdir()) == []
    assert (await place.pull("good")).id == digest(GOOD.configuration)


async def test_cve_2021_20291_a_layer_that_does_not_decompress_ends(place: Place) -> None:
    """containers/storage waited for ever for the reader of a layer that had failed."""
    image = BuiltImage([layer(entry("file", os.urandom(3_000_000)))])
    broken = image.compressed[0][:1_000_000] + bytes(2_000_000)
    place.registry.add_raw("evil", image.configuration, [broken])
    with pytest.raises(ImageFailure, match="not a valid archive"):
        await place.pull("evil")
    await place.pull("good")


async def test_cve_2021_41190_a_manifest_that_is_an_index_too_is_refused(place: Place) -> None:
    both = {**json.loads(GOOD.manifest), "manifests": []}
    for kind in ("application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json", ""):
        place.registry.manifests["evil"] = json.dumps({**both, "mediaType": kind}).encode()
        with pytest.raises(ImageFailure, match="ambiguous"):
            await place.pull("evil")


async def test_cve_2020_15157_foreign_layers_get_neither_a_request_nor_credentials(place: Place) -> None:
    """containerd sent the registry's credentials to the server that a manifest named for a layer."""
    seen: list[str] = []

    async def thief(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})

    async with serving(thief) as other:
        document = json.loads(GOOD.manifest)
        document["layers"][0] |= {"urls": [f"http://{other}/layer"]}
        place.registry.manifests["evil"] = json.dumps(document).encode()
        await place.pull("evil")
    assert seen == []


async def test_cve_2021_21285_a_manifest_of_nothing_is_an_error(place: Place) -> None:
    """It stopped dockerd."""
    for layers, config in (([None], {}), ([{}], None), ([[]], []), (None, None)):
        document = {**json.loads(GOOD.manifest), "layers": layers, "config": config}
        place.registry.manifests["evil"] = json.dumps(document).encode()
        with pytest.raises(ImageFailure):
            await place.pull("evil")


async def test_cve_2024_3727_a_digest_with_a_path_is_refused(place: Place) -> None:
    """containers/image joined the digest of a manifest to a path."""
    for name in ("sha256:../../../outside", f"sha256:{'a' * 63}/", "../outside", f"SHA256:{'A' * 64}"):
        document = json.loads(GOOD.manifest)
        document["layers"][0]["digest"] = name
        place.registry.manifests["evil"] = json.dumps(document).encode()
        with pytest.raises(ImageFailure, match="without a valid digest"):
            await place.pull("evil")


async def test_cve_2020_1702_and_cve_2023_25153_large_documents_are_not_read_into_memory(place: Place) -> None:
    place.registry.manifests["evil"] = b" " * (5 << 20)
    with pytest.raises(ImageFailure, match="sends more than"):
        await place.pull("evil")
    archive = place.top / "images" / "evil.tar"
    archive.write_bytes(layer(entry("oci-layout", b"{}"), entry("index.json", b" " * (5 << 20))))
    with pytest.raises(ImageFailure, match="has more than"):
        await place.images.load(archive)
    archive.unlink()


async def test_cve_2024_24557_a_layer_is_taken_for_another_by_its_whole_digest_alone(place: Place) -> None:
    """Docker's cache took a layer for another one. The configuration here names the good layer for other content."""
    await place.pull("good")
    stolen = layer(entry("evil", b"evil"))
    configuration = json.loads(GOOD.configuration)
    other = digest(stolen)
    configuration["rootfs"]["diff_ids"] = [digest(GOOD.layers[0]), f"sha256:{other[7:20]}{'0' * 51}"]
    place.registry.add_raw("evil", json.dumps(configuration).encode(), [gzip.compress(stolen), gzip.compress(stolen)])
    with pytest.raises(ImageFailure, match="but the image names"):
        await place.pull("evil")
    (kept,) = await place.layers("good")
    assert (kept / "good").read_bytes() == b"good"
    assert all(len(path.name) == 27 for path in (place.top / "images/layers").iterdir()), "162 bits of the digest"


async def test_cve_2021_41091_other_users_do_not_reach_the_programs_of_layers(place: Place) -> None:
    """Programs with the set-user-ID bit in Docker's directory ran as root for every user of the machine."""
    place.registry.images["setuid"] = BuiltImage([layer(entry("su", b"#!", mode=0o4755))])
    await place.pull("setuid")
    assert stat.S_IMODE((place.top / "images").stat().st_mode) == 0o700


async def test_cve_2022_23648_volumes_of_an_image_lead_nowhere(place: Place) -> None:
    """containerd copied the files below the volumes that an image names, also those above its root."""
    config: dict[str, Any] = {"Volumes": {f"/{OUT}": {}, "/etc/../../../outside": {}}}
    place.registry.images["evil"] = BuiltImage([layer(entry("file", b"x"))], config)
    await place.pull("evil")
    (unpacked,) = await place.layers("evil")
    assert [path.name for path in unpacked.rglob("*")] == ["file"]


async def test_cve_2024_23652_removing_an_image_follows_no_link(place: Place) -> None:
    """BuildKit removed files outside of a container for mount points that an image had replaced with links."""
    place.registry.images["evil"] = BuiltImage([layer(link("a", str(place.outside)), link("b/c", str(place.outside)))])
    image = await place.pull("evil")
    await place.images.remove(image.id)
    assert list((place.top / "images/layers").iterdir()) == []
