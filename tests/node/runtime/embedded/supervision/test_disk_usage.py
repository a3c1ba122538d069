"""The disk space of what containers have changed, however hostile the tree is."""

from __future__ import annotations

from pathlib import Path

from tests.node.runtime.embedded.conftest import Pods, until

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
