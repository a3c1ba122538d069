"""No pods of this machine share user ids, whichever nodes they are on and however those have ended."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.node.runtime.embedded.conftest import Pods, open_runtime

from pinnace.node.runtime.embedded.start.pod_users import RANGE
from pinnace.node.runtime.embedded.user_ranges import PLACE, RangeClaims, UserRanges


@pytest.mark.skipif(os.geteuid() != 0, reason="the pods of an ordinary user have the ids of its node")
async def test_pods_of_two_nodes_of_a_machine_share_no_user(fast_path: Path) -> None:
    nodes = [Pods(await open_runtime(fast_path / name), fast_path / name) for name in ("one", "two")]
    try:
        firsts = [
            first for firsts in await asyncio.gather(*(_first_ids(node) for node in nodes)) for first in firsts if first
        ]
        assert len({first // RANGE for first in firsts}) == len(firsts) == 6
        await nodes[0].runtime.close()
        nodes[0].runtime = await open_runtime(nodes[0].directory)
        firsts += await _first_ids(nodes[1])
        firsts += await _first_ids(nodes[0])
        assert len({first // RANGE for first in firsts}) == len(firsts) == 12
    finally:
        for node in nodes:
            await node.runtime.end()
    assert [claim for claim in PLACE.iterdir() if claim.is_symlink() and str(fast_path) in os.readlink(claim)] == []


async def _first_ids(node: Pods) -> list[int]:
    """Start three pods, and return the ids of this machine that are root in them."""
    node.host_users = None
    sandboxes = [await node.sandbox(name=f"pod-{number}") for number in range(3)]
    output = [await node.output("cat /proc/self/uid_map", sandbox) for sandbox in sandboxes]
    return [int(line.split()[1]) for line in output]


def _ranges(top: Path, node: str, **taken: int) -> UserRanges:
    files = top / "subuid", top / "subgid"
    pods = top / node
    pods.mkdir(exist_ok=True)
    known = {pods / pod: first for pod, first in taken.items()}
    return UserRanges(pods, known, files=files, claims=RangeClaims(top / "claims"))


def _set_aside(top: Path, *lines: str) -> None:
    for name in ("subuid", "subgid"):
        (top / name).write_text("\n".join(lines))


def test_a_range_of_a_killed_node_is_free_once_the_directory_of_its_pod_is_gone(tmp_path: Path) -> None:
    _set_aside(tmp_path, f"kubelet:{RANGE}:{RANGE}")
    pods = [tmp_path / node / "pod" for node in ("killed", "living")]
    killed, living = _ranges(tmp_path, "killed"), _ranges(tmp_path, "living")
    for pod in pods:
        pod.mkdir()
    assert killed.allocate(pods[0]) == RANGE
    with pytest.raises(Exception, match="could not find an empty slot"):
        living.allocate(pods[1])
    pods[0].rmdir()
    assert living.allocate(pods[1]) == RANGE
    killed.release(pods[0])  # It is another's now.
    with pytest.raises(Exception, match="could not find an empty slot"):
        killed.allocate(pods[0])


def test_a_restarted_agent_gives_up_the_claims_of_pods_that_it_does_not_know(tmp_path: Path) -> None:
    _set_aside(tmp_path, f"kubelet:{RANGE}:{2 * RANGE}")
    before = _ranges(tmp_path, "node")
    for name in ("known", "half-made"):
        (tmp_path / "node" / name).mkdir()
        before.allocate(tmp_path / "node" / name)
    _ranges(tmp_path, "node", known=RANGE)
    assert [path.name for path in (tmp_path / "claims").iterdir() if path.is_symlink()] == [str(RANGE)]


def test_pods_have_no_ids_that_a_user_has(tmp_path: Path) -> None:
    _set_aside(tmp_path, "alice:100000:65536", "bob:300000:10")
    ranges = _ranges(tmp_path, "node")
    assert [ranges.allocate(tmp_path / "node" / str(number)) for number in range(2)] == [3 * RANGE, 5 * RANGE]
