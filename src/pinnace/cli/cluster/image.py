"""`pinnace image`: the images of this machine's node."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.data_directory import default_data_dir
from pinnace.cli.failure import fail
from pinnace.cli.flags.node import NodeDirectory, OfflineFlag
from pinnace.node.errors import RuntimeFailure
from pinnace.node.image_service import Image, PullProgress
from pinnace.node.images.images import Images
from pinnace.process.clock import SystemClock


class ImageAction(StrEnum):
    load = "load"
    pull = "pull"
    ls = "ls"
    rm = "rm"


def image(
    action: Annotated[ImageAction, typer.Argument(help="The action.", metavar="load|pull|ls|rm")],
    name: Annotated[str, typer.Argument(help="load: a file; pull and rm: an image.", show_default=False)] = "",
    directory: NodeDirectory = None,
    offline: OfflineFlag = False,
) -> None:
    """Load, pull, list and remove the images of this machine's node.

    \b
    Examples:
      docker save web:v1 -o web.tar && pinnace image load web.tar
      pinnace image pull --offline localhost:5000/web:v1
      pinnace image ls
      pinnace image rm web:v1
    """
    images = Images((directory or default_data_dir() / "node") / "images", SystemClock(), is_offline=offline)
    if not name and action is not ImageAction.ls:
        fail(f"{action} needs {'a file' if action is ImageAction.load else 'the name of an image'}")
    try:
        asyncio.run(_run(images, action, name))
    except (RuntimeFailure, OSError) as error:
        fail(error)


async def _run(images: Images, action: ImageAction, name: str) -> None:
    match action:
        case ImageAction.load:
            for loaded in await images.load(Path(name)):
                print(f"loaded {', '.join(loaded.tags) or loaded.id}")
        case ImageAction.pull:
            pulled = await images.pull(name, observer=_TerminalProgress() if sys.stderr.isatty() else _print_progress)
            print(f"pulled {', '.join(pulled.tags) or pulled.id}")
        case ImageAction.ls:
            _print_table(await images.images())
        case ImageAction.rm:
            await images.remove(name)
            print(f"removed {name}")


class _TerminalProgress:
    """One line on a terminal that shows how far all layers have come."""

    def __init__(self) -> None:
        self._layers: dict[str, PullProgress] = {}

    def __call__(self, progress: PullProgress, /) -> None:
        self._layers[progress.layer] = progress
        done = sum(layer.done_bytes for layer in self._layers.values())
        total = sum(layer.total_bytes for layer in self._layers.values())
        end = "\n" if done == total else ""
        line = f"\r\x1b[K{done / 1e6:.1f} of {total / 1e6:.1f} MB in {len(self._layers)} layers"
        print(line, end=end, file=sys.stderr, flush=True)


def _print_progress(progress: PullProgress) -> None:
    if progress.done_bytes == progress.total_bytes:
        print(f"{progress.layer[7:19]}: {progress.total_bytes / 1e6:.1f} MB", file=sys.stderr, flush=True)


def _print_table(images: Sequence[Image]) -> None:
    rows = [("IMAGE", "ID", "SIZE")]
    for image in images:
        for tag in image.tags or ["<none>"]:
            rows.append((tag, image.id[7:19], f"{image.size_bytes / 1e6:.1f}MB"))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for row in rows:
        print(f"{row[0]:<{widths[0]}}   {row[1]:<{widths[1]}}   {row[2]}")
