"""The root file system of a container: overlays over the layers of its image, or copies where overlays are refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pinnace.node.errors import ConfigRefused
from pinnace.node.image_service import HOST_PROGRAMS, ImageRoot, ImageRoots
from pinnace.node.machine.mapped_root import remove_tree
from pinnace.node.runtime.runtime import ContainerConfig, Mount

_HOST_DIRECTORIES = ("bin", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr")
"""The directories of this machine that the image `host` shows, beside a filtered /etc. The others exist and are empty:
/home, /root and /var hold what belongs to the machine's users."""
_EMPTY_DIRECTORIES = {
    **{name: 0o755 for name in ("dev", "home", "mnt", "proc", "run", "srv", "sys", "var", "var/lib", "var/log")},
    **{name: 0o1777 for name in ("tmp", "var/tmp")},
    **{"root": 0o700, "var/cache": 0o755},
}


@dataclass(frozen=True, slots=True)
class Overlay:
    """One overlay mount: the lower directories as the kernel wants them, and the place below the root."""

    lower: str
    upper: str
    work: str
    at: str = ""
    is_host: bool = False
    """Whether the lower directory is that of this machine: its files are shown without their owners."""


@dataclass(frozen=True, slots=True)
class RootBind:
    """A directory that is shown read-only, and its place below the root."""

    source: str
    at: str
    is_host: bool = False
    """Whether it is a directory of this machine, as in an overlay."""


@dataclass(frozen=True, slots=True)
class RootPlan:
    """How the process of a container mounts its root."""

    root: str
    directory: str = "/"
    """The directory from which the lower directories are named: the options of a mount have at most 4,095 bytes."""
    overlays: Sequence[Overlay] = ()
    binds: Sequence[RootBind] = ()


def plan_root(directory: Path, image: ImageRoot, *, has_overlay: bool) -> RootPlan:
    """Make the directories of a container's root file system. This may copy an image: run it in a thread."""
    root = directory / "root"
    root.mkdir(mode=0o755)
    if image.is_host:
        return _plan_host(directory, root, image, has_overlay=has_overlay)
    if has_overlay and image.layers:
        above = os.path.commonpath([layer.parent for layer in image.layers])
        lower = ":".join(_escape(os.path.relpath(layer, above)) for layer in image.layers)
        return RootPlan(str(root), above, [_overlay(directory, lower)])
    for layer in reversed(image.layers):
        _copy_layer(layer, root)
    return RootPlan(str(root))


@dataclass(frozen=True, slots=True)
class ImageMount:
    """How the process of a container mounts the files of an image: a directory, with an overlay on it or without."""

    source: str
    directory: str = "/"
    lower: str = ""


def plan_image_mount(directory: Path, image: ImageRoot, *, has_overlay: bool) -> ImageMount:
    """Make the directory of an image volume. This may copy the image: run it in a thread."""
    if image.is_host:
        raise ConfigRefused("the image of a volume is this machine; only containers may have it")
    if len(image.layers) == 1:
        return ImageMount(str(image.layers[0]))
    directory.mkdir(parents=True, mode=0o755)
    if has_overlay and image.layers:
        above = os.path.commonpath([layer.parent for layer in image.layers])
        lower = ":".join(_escape(os.path.relpath(layer, above)) for layer in image.layers)
        return ImageMount(str(directory), above, lower)
    for layer in reversed(image.layers):
        _copy_layer(layer, directory)
    return ImageMount(str(directory))


async def plan_image_mounts(
    directory: Path, config: ContainerConfig, images: ImageRoots, *, has_overlay: bool
) -> dict[int, ImageMount]:
    """Plan the image volumes of a container, by the place of their mounts."""
    plans = {}
    for number, mount in enumerate(config.mounts):
        if mount.image:
            image = await images.root_of(mount.image)
            if image.is_host:
                raise ConfigRefused("this machine itself cannot be an image volume; load an image for it")
            place = directory / "images" / str(number)
            plans[number] = await asyncio.to_thread(plan_image_mount, place, image, has_overlay=has_overlay)
    return plans


def make_mount_points(directory: Path, plan: RootPlan, mounts: Sequence[Mount]) -> None:
    """Make the missing directories on which volumes are mounted, in the upper directories of a container's overlays.

    An ordinary user cannot make them in the overlay: the directories of this machine belong to a user that it lacks.
    """
    for mount in mounts:
        path = mount.container_path.strip("/")
        top = path.partition("/")[0]
        is_missing = not os.path.lexists(f"/{path}") and ".." not in path.split("/")
        if is_missing and os.path.isdir(mount.host_path) and any(overlay.at == top for overlay in plan.overlays):
            (directory / "upper" / path).mkdir(mode=0o755, parents=True, exist_ok=True)


def _overlay(directory: Path, lower: str, at: str = "") -> Overlay:
    upper, work = directory / "upper" / at, directory / "work" / at
    upper.mkdir(mode=0o755, parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    return Overlay(lower, _escape(str(upper)), _escape(str(work)), at)


def _plan_host(directory: Path, root: Path, image: ImageRoot, *, has_overlay: bool) -> RootPlan:
    overlays, binds = [], []
    programs = image.programs
    (root / "etc").mkdir(mode=0o755)
    if image.etc is not None and has_overlay:
        overlays.append(_overlay(directory, _escape(str(image.etc)), "etc"))
    elif image.etc is not None:
        binds.append(RootBind(str(image.etc), "etc"))
    for name, mode in _EMPTY_DIRECTORIES.items():
        (root / name).mkdir(exist_ok=True)
        (root / name).chmod(mode)
    (root / "var/run").symlink_to("/run")
    for name in _HOST_DIRECTORIES:
        source = Path("/") / name
        if source.is_symlink():
            (root / name).symlink_to(os.readlink(source))
        elif source.is_dir():
            (root / name).mkdir()
            if has_overlay and not directory.is_relative_to(source):
                overlays.append(replace(_overlay(directory, "", name), is_host=True))
            else:
                binds.append(RootBind(str(source), name, is_host=True))
    if programs is not None:
        (root / HOST_PROGRAMS).mkdir(mode=0o755)
        binds.append(RootBind(str(programs), HOST_PROGRAMS))
    return RootPlan(str(root), "/", overlays, binds)


def _copy_layer(layer: Path, root: Path) -> None:
    """Copy a layer over those below it, and apply its whiteouts."""
    for place, directories, files in os.walk(layer):
        target = root / os.path.relpath(place, layer)
        if target.is_symlink() or not target.is_dir():
            _remove_any(target)  # A link of a lower layer would lead all that follows out of the root.
            target.mkdir()
        with contextlib.suppress(OSError):
            if os.getxattr(place, "user.overlay.opaque") == b"y":
                for child in list(target.iterdir()):
                    _remove_any(child)
        shutil.copystat(place, target)
        for name in [*files, *(name for name in directories if os.path.islink(os.path.join(place, name)))]:
            source, copied = Path(place) / name, target / name
            _remove_any(copied)
            if stat.S_IFMT(source.lstat().st_mode) in (stat.S_IFREG, stat.S_IFLNK):
                shutil.copy2(source, copied, follow_symlinks=False)


def _remove_any(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
