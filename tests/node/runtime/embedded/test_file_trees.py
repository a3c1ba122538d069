"""The files that containers make: their disk space, and their removal, however hostile the tree is."""

from __future__ import annotations

import os
from pathlib import Path

from tests.node.runtime.embedded.conftest import Pods, until

from pinnace.node.runtime.embedded.file_trees import remove_files, sizes_below

_BIG = 1 << 20


async def _until_done(pods: Pods, container: str) -> None:
    """Wait until a container has printed `done`."""
    log = Path((await pods.runtime.container(container)).log_file)

    async def is_done() -> bool:
        return log.exists() and "done" in log.read_text()

    await until(is_done)


async def _layer_bytes(pods: Pods, command: str) -> int:
    """Run a command, and return the size of the changes that it makes in its image."""
    container = await pods.start(f"{command}; echo done; sleep 1000")
    await _until_done(pods, container)
    return (await pods.runtime.disk_usage(str(pods.directory / "none"), [container])).layers[container]


async def test_a_container_that_changes_nothing_has_an_empty_layer(pods: Pods) -> None:
    assert await _layer_bytes(pods, "true") < 100_000


async def test_changes_in_the_image_are_measured(pods: Pods) -> None:
    write = f"head -c {_BIG} /dev/zero > "
    used = await _layer_bytes(pods, f"mkdir -p /tmp/d; {write} /tmp/d/a; {write} /var/tmp/b; ln /tmp/d/a /tmp/again")
    assert 2 * _BIG <= used < 2 * _BIG + 100_000


async def test_files_that_their_owner_may_not_read_are_measured_too(pods: Pods) -> None:
    hide = "mkdir /tmp/h; head -c 1048576 /dev/zero > /tmp/h/x; chmod 0 /tmp/h"
    assert await _layer_bytes(pods, hide) >= _BIG


async def test_a_deep_tree_is_measured_and_removed(pods: Pods) -> None:
    sandbox = await pods.sandbox()
    deep = (
        "import os; os.chdir('/tmp')\n"
        "for _ in range(3000): os.mkdir('a-long-name'); os.chdir('a-long-name')\n"
        "open('file', 'wb').write(bytes(1 << 20))\n"
        "print('done', flush=True); import time; time.sleep(1000)"
    )
    container = await pods.start(["python3", "-c", deep], sandbox)
    await _until_done(pods, container)
    assert (await pods.runtime.disk_usage("/nonexistent", [container])).layers[container] >= _BIG
    await pods.runtime.remove_sandbox(sandbox)
    assert not (pods.directory / "pods" / sandbox).exists()


def test_sizes_are_added_by_the_first_two_parts_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "volumes/work/deeper").mkdir(parents=True)
    (tmp_path / "volumes/work/deeper/file").write_bytes(b"x" * 10_000)
    (tmp_path / "hosts").write_bytes(b"x" * 100)
    (tmp_path / "volumes/away").symlink_to("/usr")
    sizes = sizes_below(str(tmp_path))
    assert 10_000 <= sizes["volumes/work"] < 50_000
    assert sizes["volumes/away"] <= 4096
    assert "hosts" in sizes
    assert sizes_below(str(tmp_path / "none")) == {}


def test_directories_without_permissions_are_removed(tmp_path: Path) -> None:
    closed = tmp_path / "tree/closed"
    (closed / "below").mkdir(parents=True)
    (closed / "below/file").touch()
    for place in (closed / "below", closed):
        place.chmod(0)
    remove_files(str(tmp_path / "tree"))
    remove_files(str(tmp_path / "tree"))
    assert os.listdir(tmp_path) == []
