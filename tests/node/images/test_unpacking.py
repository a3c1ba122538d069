"""Layers are unpacked inside their directory, whatever they contain."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import tarfile
from pathlib import Path

import pytest
from tests.node.images.image_files import Entry, compress_zstd, digest, directory, entry, layer, link

from pinnace.node.errors import ImageFailure
from pinnace.node.image_service import ImageConfig, ImageRoot
from pinnace.node.images.unpacking import UnpackLimits, unpack_layer
from pinnace.node.runtime.embedded.launches.root_plans import plan_root


def _unpack(tmp_path: Path, *entries: Entry, limits: UnpackLimits | None = None) -> Path:
    target = tmp_path / "layer"
    data = layer(*entries)
    assert unpack_layer(io.BytesIO(data), target, limits=limits) == digest(data)
    return target


def test_files_directories_and_links_are_unpacked(tmp_path: Path) -> None:
    target = _unpack(
        tmp_path,
        directory("./etc", 0o750),
        entry("etc/passwd", b"root:x:0:0::/root:/bin/sh\n", mode=0o640, mtime=1_000_000),
        entry("usr/bin/deep/made", b"parents are made"),
        link("etc/link", "/etc/passwd"),
        link("etc/hard", "etc/passwd", hard=True),
        entry("run/pipe", type=tarfile.FIFOTYPE),
    )
    assert stat.S_IMODE((target / "etc").stat().st_mode) == 0o750
    assert (target / "etc/passwd").stat().st_mtime == 1_000_000
    assert os.readlink(target / "etc/link") == "/etc/passwd"
    assert (target / "etc/hard").stat().st_ino == (target / "etc/passwd").stat().st_ino
    assert stat.S_ISFIFO((target / "run/pipe").stat().st_mode)


def test_compressed_layers_are_named_by_their_uncompressed_digest(tmp_path: Path) -> None:
    data = layer(entry("file", b"x" * 100_000))
    assert unpack_layer(io.BytesIO(gzip.compress(data)), tmp_path / "layer") == digest(data)


def test_zstd_layers_are_named_by_their_uncompressed_digest(tmp_path: Path) -> None:
    data = layer(entry("file", bytes(range(256)) * 10_000))
    packed = compress_zstd(data)
    assert unpack_layer(io.BytesIO(packed), tmp_path / "layer") == digest(data)
    assert (tmp_path / "layer/file").read_bytes() == bytes(range(256)) * 10_000
    with pytest.raises(ImageFailure, match="not a valid archive"):
        unpack_layer(io.BytesIO(packed[: len(packed) // 2]), tmp_path / "cut")
    with pytest.raises(ImageFailure, match="not a valid archive"):
        unpack_layer(io.BytesIO(packed[:10] + b"\xff" * 40), tmp_path / "broken")


def test_a_zstd_bomb_is_refused(tmp_path: Path) -> None:
    packed = compress_zstd(layer(entry("zeros", b"\0" * 5_000_000)))
    assert len(packed) < 5_000
    with pytest.raises(ImageFailure, match="more than the limit"):
        unpack_layer(io.BytesIO(packed), tmp_path / "layer", limits=UnpackLimits(bytes=1_000_000))


def test_zstd_names_the_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("this Python has zstd")
    packed = compress_zstd(layer(entry("file", b"x")))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImageFailure, match=r"pip install 'pinnace\[zstd\]'"):
        unpack_layer(io.BytesIO(packed), tmp_path / "layer")


def test_whiteouts_become_those_of_overlayfs(tmp_path: Path) -> None:
    target = _unpack(tmp_path, entry("etc/.wh.gone"), entry("var/.wh..wh..opq"), entry("var/kept", b""))
    gone = (target / "etc/gone").lstat()
    assert stat.S_ISCHR(gone.st_mode) and gone.st_rdev == 0
    assert os.getxattr(target / "var", "user.overlay.opaque") == b"y"


def test_a_later_entry_replaces_an_earlier_one(tmp_path: Path) -> None:
    target = _unpack(
        tmp_path, entry("a/file", b"in a directory"), link("b", "a"), entry("b", b"new"), entry("a", b"a file now")
    )
    assert (target / "a").read_bytes() == b"a file now"
    assert (target / "b").read_bytes() == b"new"


def test_a_path_through_a_link_stays_inside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = _unpack(
        tmp_path,
        directory("real"),
        link("inside", "real"),
        entry("inside/file", b"content"),
        link("up", "../../outside"),
        directory("outside"),
        entry("up/caught", b"content"),
        link("absolute", str(outside)),
        directory(str(outside)),
        entry("absolute/caught", b"content"),
    )
    assert (target / "real/file").read_bytes() == b"content"
    assert list(outside.iterdir()) == []


def test_the_mode_of_a_file_outside_is_never_changed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("private")
    outside.chmod(0o600)
    _unpack(
        tmp_path,
        link("symbolic", str(outside)),
        entry("hard", type=tarfile.LNKTYPE, linkname="symbolic", mode=0o777),
        directory("replaced", 0o777),
        link("replaced", str(outside)),
    )
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600


def test_device_nodes_are_left_out(tmp_path: Path) -> None:
    target = _unpack(
        tmp_path,
        entry("dev/disk", type=tarfile.BLKTYPE, devmajor=8),
        entry("dev/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        entry("kept", b""),
    )
    assert [path.name for path in target.rglob("*")] == ["kept"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param([entry("../outside", b"x")], "leads out of the image", id="climbs out"),
        pytest.param([entry("a/../../outside", b"x")], "leads out of the image", id="climbs out below"),
        pytest.param([link("hard", "../../etc/passwd", hard=True)], "leads out of the image", id="link climbs out"),
        pytest.param([link("hard", "/etc/passwd", hard=True)], "is a hard link to /etc/passwd", id="link outside"),
        pytest.param(
            [link("s", "/etc/passwd"), link("h", "s", hard=True), entry("h/x", b"")],
            "leads nowhere",
            id="below a link",
        ),
        pytest.param([link("nowhere", "missing"), entry("nowhere/x", b"")], "leads nowhere", id="dangling"),
        pytest.param([entry(".wh...", b"")], "hides nothing", id="whiteout of the parent"),
        pytest.param([entry(".wh.", b"")], "hides nothing", id="whiteout of nothing"),
        pytest.param([entry("big", b"x" * 200_000)], "decompression bomb", id="too large"),
        pytest.param([entry(f"f{n}") for n in range(60)], "more than 50 entries", id="too many"),
    ],
)
def test_hostile_layers_are_refused(tmp_path: Path, entries: list[Entry], message: str) -> None:
    target = tmp_path / "deep" / "layer"
    target.parent.mkdir()
    with pytest.raises(ImageFailure, match=message):
        unpack_layer(io.BytesIO(layer(*entries)), target, limits=UnpackLimits(bytes=150_000, entries=50))
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_a_header_that_claims_to_be_huge_is_refused_before_it_is_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    with pytest.raises(ImageFailure, match="extended header"):
        unpack_layer(io.BytesIO(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 10240), tmp_path / "layer")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not an archive at all, and longer than a header" * 40, id="text"),
        pytest.param(gzip.compress(layer(entry("file", b"x" * 5000)))[:-50], id="cut"),
        pytest.param(b"\x1f\x8b" + b"\xff" * 100, id="broken compression"),
        pytest.param(b"\x28\xb5\x2f\xfd" + b"\0" * 100, id="zstd"),
        pytest.param(layer(entry("file", b"x" * 5000))[:2000], id="cut tar"),
    ],
)
def test_broken_layers_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ImageFailure):
        unpack_layer(io.BytesIO(data), tmp_path / "layer")


def test_a_copied_root_does_not_follow_the_links_of_lower_layers(tmp_path: Path) -> None:
    """Where the kernel has no overlays, layers are copied over each other."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    unpack_layer(io.BytesIO(layer(link("data", str(outside)), link("file", str(outside / "kept")))), lower)
    unpack_layer(io.BytesIO(layer(entry("data/new", b"x"), entry("data/.wh.kept"), entry("file", b"y"))), upper)
    directory = tmp_path / "container"
    directory.mkdir()
    plan = plan_root(directory, ImageRoot(ImageConfig(), [upper, lower]), has_overlay=False)
    assert [path.name for path in outside.iterdir()] == ["kept"] and (outside / "kept").read_text() == "kept"
    assert (Path(plan.root) / "data/new").read_bytes() == b"x"
    assert not (Path(plan.root) / "data").is_symlink() and not (Path(plan.root) / "file").is_symlink()
