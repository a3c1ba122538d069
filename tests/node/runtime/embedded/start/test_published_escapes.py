"""Published escapes of runc and containerd, each tried with a real container. `test_container_start` has the others."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.machine import need
from tests.node.runtime.embedded.conftest import Pods

from pinnace.node.errors import StartFailed
from pinnace.node.machine import linux
from pinnace.node.machine.subordinate_ids import find_mappers
from pinnace.node.runtime.runtime import MASKED_PATHS, READ_ONLY_PATHS, Mount, SecurityContext

pytestmark = pytest.mark.usefixtures("each_kind_of_users")
_EXCHANGE = 2
_HIDDEN = SecurityContext(masked_paths=MASKED_PATHS, read_only_paths=READ_ONLY_PATHS)


@pytest.mark.parametrize(
    ("published", "command", "security", "expected"),
    [
        (
            "CVE-2022-29162",
            "grep CapInh /proc/self/status",
            SecurityContext(),
            "CapInh: 0000000000000000",
        ),
        ("CVE-2022-27650", "grep CapInh /proc/self/status", SecurityContext(), "CapInh: 0000000000000000"),
        ("CVE-2022-24769", "grep CapAmb /proc/self/status", SecurityContext(), "CapAmb: 0000000000000000"),
        ("CVE-2025-31133", "stat -c '%F %t:%T' /proc/keys", _HIDDEN, "character special file 1:3"),
        ("CVE-2025-52881", "(echo x > /proc/sys/kernel/domainname) 2>&1 | grep -c Read-only", _HIDDEN, "1"),
        ("CVE-2023-25809", "touch /sys/fs/cgroup/x 2>/dev/null || echo refused", SecurityContext(), "refused"),
        ("CVE-2020-15257", "grep -c @ /proc/net/unix || true", SecurityContext(), "0"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("CVE") else "",
)
async def test_a_container_has_nothing_of_a_published_escape(
    pods: Pods, published: str, command: str, security: SecurityContext, expected: str
) -> None:
    assert " ".join((await pods.output(command, security=security)).split()) == expected, published


@pytest.mark.parametrize(
    ("published", "targets"),
    [("CVE-2019-16884", ["/proc"]), ("CVE-2019-19921", ["/proc/sys", "/proc/self/attr", "/data/../proc/sys"])],
)
async def test_no_volume_hides_the_kernels_files(
    pods: Pods, tmp_path: Path, published: str, targets: Sequence[str]
) -> None:
    tmp_path.chmod(0o755)
    for target in targets:
        with pytest.raises(StartFailed, match="cannot be mounted because it is inside /proc"):
            await pods.start(["true"], mounts=[Mount(container_path=target, host_path=str(tmp_path))])


async def test_a_mount_point_behind_a_link_stays_inside(pods: Pods, tmp_path: Path) -> None:
    """CVE-2019-18837, CVE-2021-30465, CVE-2024-45310: the target of a mount is behind a link out of a volume."""
    tmp_path.chmod(0o755)
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    volume.mkdir()
    outside.mkdir()
    (volume / "link").symlink_to(outside)
    mounts: list[Any] = [
        Mount(container_path="/data", host_path=str(volume)),
        Mount(container_path="/data/link/made", host_path=str(volume)),
    ]
    with pytest.raises(StartFailed, match="link: File exists"):
        await pods.output(["true"], mounts=mounts)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["proc", "sys", "dev"])
@pytest.mark.parametrize("target", ["/data", "../../../../data", "/data/../data"])
async def test_an_image_whose_kernel_files_are_a_link_is_refused(
    pods: Pods, tmp_path: Path, name: str, target: str
) -> None:
    """CVE-2019-19921, CVE-2023-27561 and CVE-2023-28642: the masks would be made at the end of the link."""
    tmp_path.chmod(0o755)
    layer, volume = tmp_path / "layer", tmp_path / "volume"
    for path in (layer / "bin", volume):
        path.mkdir(parents=True)
    shutil.copy(need("busybox"), layer / "bin" / "busybox")
    (layer / name).symlink_to(target)
    mounts = [Mount(container_path="/data", host_path=str(volume))]
    with pytest.raises(StartFailed, match=name):
        await pods.start(["/bin/busybox", "true"], image=str(layer), mounts=mounts, security=_HIDDEN)
    assert list(volume.iterdir()) == []


async def test_a_terminal_is_never_bound_over_a_link_of_the_image(pods: Pods, tmp_path: Path) -> None:
    """CVE-2025-52565: the terminal was bound to /dev/console, or where a link led, before the masks were made."""
    tmp_path.chmod(0o755)
    layer = tmp_path / "layer"
    for name in ("bin", "dev/pts"):
        (layer / name).mkdir(parents=True)
    shutil.copy(need("busybox"), layer / "bin" / "busybox")
    (layer / "dev" / "console").symlink_to("/proc/sys/kernel/core_pattern")
    (layer / "dev" / "pts" / "0").symlink_to("/proc/sysrq-trigger")
    look = "b=/bin/busybox; $b tty; $b ls /dev/console; $b grep -c -e console -e core_pattern /proc/self/mountinfo"
    output = await pods.output(["/bin/busybox", "sh", "-c", look], image=str(layer), security=_HIDDEN, tty=True)
    terminal, console, mounts = output.replace("\r", "").splitlines()
    assert terminal.startswith("/dev/pts/")
    assert "No such file" in console
    assert mounts == "0"


async def test_a_mount_point_that_another_container_swaps_stays_inside(pods: Pods, tmp_path: Path) -> None:
    """CVE-2021-30465: a directory of a volume and a link that leads out of it change places all the time."""
    tmp_path.chmod(0o755)
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for path in (volume / "place", outside):
        path.mkdir(parents=True)
    (volume / "link").symlink_to(outside)
    swapping = os.fork()
    if swapping == 0:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        while True:
            linux.libc.renameat2(-100, bytes(volume / "place"), -100, bytes(volume / "link"), _EXCHANGE)
    mounts = [
        Mount(container_path="/data", host_path=str(volume)),
        Mount(container_path="/data/place/made", host_path=str(volume)),
    ]
    results = []
    try:
        sandbox = await pods.sandbox()
        for number in range(30):
            try:
                await pods.start(["true"], sandbox, name=f"c{number}", mounts=mounts)
                results.append("inside")
            except StartFailed:
                results.append("refused")
    finally:
        os.kill(swapping, signal.SIGKILL)
        os.waitpid(swapping, 0)
    assert list(outside.iterdir()) == []
    assert len(results) == 30


async def test_a_user_of_an_image_has_its_groups_alone(pods: Pods, tmp_path: Path) -> None:
    """CVE-2023-25173: the groups of the runtime stayed, or the main group of the user was missing."""
    tmp_path.chmod(0o755)
    layer = tmp_path / "layer"
    for name in ("bin", "etc"):
        (layer / name).mkdir(parents=True)
    shutil.copy(need("busybox"), layer / "bin" / "busybox")
    (layer / "etc" / "passwd").write_text("web:x:1000:1001:web:/:/bin/sh\n")
    (layer / "etc" / "group").write_text("extra:x:42:web\n")
    command = ["/bin/busybox", "id", "-G"]
    output = await pods.output(command, image=str(layer), security=SecurityContext(user_name="web"))
    has_ids = os.geteuid() == 0 or find_mappers()
    assert set(output.split()) - ({"65534"} if not has_ids else set()) == ({"1001", "42"} if has_ids else {"1001"})
