"""An ordinary user with subordinate ids: several users in a pod, owners of images, and nothing left behind.

Root runs these tests once more as such a user, whose ids are in files that are bound over /etc/subuid and /etc/subgid.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.machine import need
from tests.node.images.image_files import BuiltImage, directory, entry, layer
from tests.node.ordinary_user import needs_root, run_tests_as_user_with_ids
from tests.node.runtime.embedded.conftest import Pods

from pinnace.node.images.images import Images
from pinnace.node.machine.mapped_root import remove_tree
from pinnace.node.machine.subordinate_ids import find_mappers
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings
from pinnace.node.runtime.runtime import SecurityContext
from pinnace.process.clock import SystemClock

needs_ids = pytest.mark.skipif(not find_mappers(), reason="this user has no subordinate ids")


@needs_root
def test_an_ordinary_user_with_subordinate_ids_has_several_users_in_a_pod() -> None:
    need("newuidmap")
    run_tests_as_user_with_ids(
        "node/runtime/embedded/test_subordinate_ids.py",
        "node/runtime/embedded/supervision/test_survival.py",
        "node/runtime/embedded/supervision/test_disk_usage.py",
        "node/agent/volumes/test_volume_updates.py",
        "node/agent/volumes/test_volumes.py::test_the_group_of_a_pod_owns_its_volumes",
    )


@needs_ids
async def test_a_process_changes_to_other_users_and_groups(pods: Pods) -> None:
    command = (
        "id -u; id -g; id -G; setpriv --reuid=12345 --clear-groups id -u; "
        "touch /tmp/a; chown 7:8 /tmp/a; stat -c %u:%g /tmp/a"
    )
    security = SecurityContext(user=0, supplemental_groups=[100, 2000])
    lines = (await pods.output(command, security=security)).split("\n")
    assert lines[:2] == ["0", "0"]
    assert set(lines[2].split()) == {"0", "100", "2000"}
    assert lines[3:5] == ["12345", "7:8"]


@needs_ids
async def test_a_user_beyond_the_subordinate_ids_runs_alone(pods: Pods) -> None:
    assert await pods.output("id -u", security=SecurityContext(user=1_000_680_000)) == "1000680000\n"


@needs_ids
async def test_files_of_other_users_go_with_their_pod(pods: Pods) -> None:
    sandbox = await pods.sandbox()
    await pods.output("mkdir /tmp/d && echo x > /tmp/d/f && chown -R 33:33 /tmp/d && chmod 700 /tmp/d", sandbox)
    await pods.runtime.remove_sandbox(sandbox)
    assert not (pods.directory / "pods" / sandbox).exists()


@needs_ids
async def test_the_owners_of_an_image_are_kept() -> None:
    place = Path(tempfile.mkdtemp(prefix="pinnace-"))
    owned = [directory("home"), entry("home/file", b"x", uid=33, gid=44, mode=0o600), directory("bin")]
    program = entry("bin/busybox", Path(need("busybox")).read_bytes(), mode=0o755)
    made = BuiltImage([layer(*owned, program)])
    images = Images(place / "images", SystemClock(), is_offline=True)
    runtime = None
    try:
        (image,) = await images.load(made.write_docker(place / "image.tar", "owned:v1"))
        runtime = await EmbeddedRuntime.open(EmbeddedSettings(directory=place / "runtime"), images, SystemClock())
        pods = Pods(runtime, place / "runtime")
        command = ["/bin/busybox", "stat", "-c", "%u:%g %a", "/home/file"]
        assert await pods.output(command, image=image.id) == "33:44 600\n"
    finally:
        if runtime is not None:
            await runtime.end()
        remove_tree(place)
    assert not place.exists()
