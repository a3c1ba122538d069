"""Images from files, and the store that they come into."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.node.images.image_files import BuiltImage, digest, directory, entry, layer

from pinnace.node.errors import ImageFailure, InvalidImageName, NotThere
from pinnace.node.images.images import Images
from pinnace.node.images.records import ImageRecords
from pinnace.process.clock import SystemClock

BASE = layer(directory("etc"), entry("etc/base", b"base"))
UPPER = layer(directory("etc"), entry("etc/upper", b"upper"))
IMAGE = BuiltImage([BASE, UPPER], {"Cmd": ["serve"], "Env": ["A=b"], "User": "web", "WorkingDir": "/srv"})


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "images", SystemClock(), is_offline=True)


@pytest.mark.parametrize("write", [BuiltImage.write_oci, BuiltImage.write_docker], ids=["oci", "docker"])
async def test_an_archive_is_loaded(
    images: Images, tmp_path: Path, write: Callable[[BuiltImage, Path, str], Path]
) -> None:
    loaded = await images.load(write(IMAGE, tmp_path / "image.tar", "example.com/web:v1"))
    assert [(image.id, list(image.tags)) for image in loaded] == [(digest(IMAGE.configuration), ["example.com/web:v1"])]
    result = await images.find("example.com/web:v1")
    assert result is not None
    assert (result.config.command, result.config.user, result.config.working_directory) == (["serve"], "web", "/srv")
    root = await images.root_of(result.id)
    assert [(path / "etc").iterdir().__next__().name for path in root.layers] == ["upper", "base"]


async def test_layers_are_shared_and_go_with_the_last_image(images: Images, tmp_path: Path) -> None:
    other = BuiltImage([BASE], {"Cmd": ["other"]})
    await images.load(IMAGE.write_oci(tmp_path / "one.tar", "example.com/web:v1"))
    await images.load(other.write_oci(tmp_path / "two.tar", "example.com/other:v1"))
    layers = tmp_path / "images" / "layers"
    assert len(list(layers.iterdir())) == 2
    await images.remove("example.com/web:v1")
    assert len(list(layers.iterdir())) == 1
    await images.remove(digest(other.configuration))
    assert list(layers.iterdir()) == []
    with pytest.raises(NotThere):
        await images.remove("example.com/other:v1")


def test_a_second_process_does_not_disturb_one_that_unpacks(tmp_path: Path) -> None:
    left = tmp_path / "layers" / "other.new-1"
    content = layer(entry("file", b"x" * 3_000_000))

    class Source(io.BytesIO):
        """A layer that is read while another process opens the images."""

        def read(self, size: int | None = -1, /) -> bytes:
            ImageRecords(tmp_path)
            return super().read(size)

    records = ImageRecords(tmp_path)
    left.mkdir()
    records.add_layer(Source(content), digest(content))
    assert (records.layer(digest(content)) / "file").stat().st_size == 3_000_000
    assert left.exists()
    ImageRecords(tmp_path)
    assert not left.exists()


async def test_a_tag_moves_to_the_newer_image(images: Images, tmp_path: Path) -> None:
    newer = BuiltImage([BASE], {"Cmd": ["newer"]})
    await images.load(IMAGE.write_oci(tmp_path / "one.tar", "example.com/web:v1"))
    await images.load(newer.write_oci(tmp_path / "two.tar", "example.com/web:v1"))
    image = await images.find("example.com/web:v1")
    assert image is not None and image.id == digest(newer.configuration)
    assert len(await images.images()) == 2


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        pytest.param(IMAGE.configuration, "has another digest", id="configuration"),
        pytest.param(IMAGE.manifest, "has another digest", id="manifest"),
        pytest.param(IMAGE.compressed[1], "has the digest", id="layer"),
    ],
)
async def test_wrong_content_is_refused_and_leaves_nothing(
    images: Images, tmp_path: Path, blob: bytes, message: str
) -> None:
    wrong = layer(entry("evil", b"other content"))
    path = IMAGE.write_oci(tmp_path / "image.tar", "example.com/web:v1", broken={digest(blob): wrong})
    with pytest.raises(ImageFailure, match=message):
        await images.load(path)
    assert await images.images() == []
    assert not [path for path in (tmp_path / "images").rglob("*new*")]


async def test_an_image_for_another_architecture_is_refused(images: Images, tmp_path: Path) -> None:
    other = BuiltImage([BASE], architecture="mips")
    with pytest.raises(ImageFailure, match="the image is for linux/mips"):
        await images.load(other.write_docker(tmp_path / "image.tar", "example.com/web:v1"))


@pytest.mark.parametrize(
    "content", [b"", b"text" * 1000, layer(entry("file", b"x")), layer(entry("manifest.json", b"{"))]
)
async def test_a_file_that_is_no_image_is_refused(images: Images, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "image.tar").write_bytes(content)
    with pytest.raises(ImageFailure):
        await images.load(tmp_path / "image.tar")


async def test_a_missing_file_is_named(images: Images, tmp_path: Path) -> None:
    with pytest.raises(ImageFailure, match=r"nowhere\.tar cannot be read: No such file"):
        await images.load(tmp_path / "nowhere.tar")


@pytest.mark.parametrize("name", ["host", "busybox", "busybox:1.36", "docker.io/library/busybox:latest"])
async def test_names_of_the_table_are_this_machine(images: Images, name: str) -> None:
    image = await images.find(name)
    assert image is not None
    root = await images.root_of(image.id)
    assert root.is_host
    assert root.config.command == ("sh",)


async def test_users_add_lines_to_the_table(images: Images, tmp_path: Path) -> None:
    (tmp_path / "images" / "host-images").write_text("# name program command\nexample.com/tool ls ls -l\nother nope\n")
    image = await images.find("example.com/tool:v3")
    assert image is not None and (await images.root_of(image.id)).config.command == ["ls", "-l"]
    assert await images.find("other") is None
    assert await images.find("example.com/unknown") is None


async def test_a_loaded_image_comes_before_the_table(images: Images, tmp_path: Path) -> None:
    await images.load(IMAGE.write_docker(tmp_path / "image.tar", "busybox:latest"))
    image = await images.find("busybox")
    assert image is not None and image.id == digest(IMAGE.configuration)


async def test_unused_images_go_when_the_disk_is_full(images: Images, tmp_path: Path) -> None:
    other = BuiltImage([BASE], {"Cmd": ["other"]})
    await images.load(IMAGE.write_oci(tmp_path / "one.tar", "example.com/web:v1"))
    await images.load(other.write_oci(tmp_path / "two.tar", "example.com/other:v1"))
    assert await images.collect([], high_percent=101) == []
    assert await images.collect([digest(other.configuration)], high_percent=0, low_percent=0) == [
        digest(IMAGE.configuration)
    ]
    assert [image.id for image in await images.images()] == [digest(other.configuration)]


@pytest.mark.parametrize("name", ["", "UPPER", "a b", "web:", "web:$", "web@sha256:12", "/web", "-", "a//b", "x" * 300])
async def test_invalid_names_are_refused(images: Images, name: str) -> None:
    with pytest.raises(InvalidImageName, match="invalid reference format"):
        await images.find(name)
