"""Egress, in a machine that the test makes: network namespaces without a route to the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import typer
from tests.machine import do_without, need
from tests.network.pods.fake_machine import OWN_ADDRESS
from tests.node.namespaces import need_namespaces
from tests.node.ordinary_user import NOBODY, keep_checkout_reachable, needs_root

from pinnace.cli.flags.node import checked_egress
from pinnace.network.pods.egress import EgressUnavailable, plan_link, plan_program

_TOP = Path(__file__).parents[3]


def _paths(*names: str) -> dict[str, str]:
    return {name: f"/usr/bin/{name}" for name in names}


def test_an_ordinary_user_has_pasta_before_slirp4netns() -> None:
    command = plan_program(77, _paths("pasta", "slirp4netns").get)
    assert command[0] == "/usr/bin/pasta"
    assert command[-4:] == ["--userns", "/proc/77/ns/user", "--netns", "/proc/77/ns/net"]
    assert command.count("none") == 4  # No port of the machine leads into the node.
    assert "--ipv4-only" in command, "the rules for packets that leave know IPv4 alone"
    command = plan_program(77, _paths("slirp4netns").get)
    assert command[0] == "/usr/bin/slirp4netns"
    assert "--disable-host-loopback" in command
    assert command[-2:] == ["/proc/77/ns/net", "egress0"]


def test_egress_without_a_program_is_refused_with_the_fix() -> None:
    with pytest.raises(EgressUnavailable, match=r"install one \(Debian: passt or slirp4netns\), or leave out --egress"):
        plan_program(77, _paths().get)


def test_two_nodes_have_links_of_their_own() -> None:
    first, second = plan_link(Path("/a")), plan_link(Path("/b"))
    assert {first.name, first.table, first.machine}.isdisjoint({second.name, second.table, second.machine})
    assert len(first.name) < 16
    assert first.machine.network == first.node.network


def test_up_refuses_egress_that_this_user_cannot_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked_egress(wanted=False) is False
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(typer.Exit):
        checked_egress(wanted=True)
    assert "egress needs pasta or slirp4netns" in capsys.readouterr().err


@needs_root
@pytest.mark.parametrize("user", [pytest.param(0, id="root"), pytest.param(NOBODY, id="ordinary user")])
def test_pods_reach_another_machine_only_while_egress_is_open(user: int) -> None:
    need_namespaces()
    if user:
        need("slirp4netns")
    if user and not os.path.exists("/dev/net/tun"):
        do_without("this kernel has no tun device")
    closed, opened, knocked, knocked_by_node, closed_again, forwarding = _run_machine(user)
    assert "unreachable" in closed
    assert opened == OWN_ADDRESS
    assert knocked == "none else;", "pods reach neither the machine nor the addresses of its cloud"
    assert knocked_by_node == "none else", "pods with the node's network, and proxies, reach no more"
    assert "unreachable" in closed_again or "No route" in closed_again
    assert forwarding == ("000" if user else "010")


def _run_machine(user: int) -> list[str]:
    """Run the machine in a network namespace of its own, and return the lines that its pods print."""
    directory = Path(tempfile.mkdtemp(prefix="pinnace-"))
    os.chown(directory, user, user)
    command = [
        *("unshare", "--net", "--mount", *keep_checkout_reachable(directory), "env", "-C", str(_TOP)),
        *(sys.executable, "-m", "tests.network.pods.fake_machine", str(directory), str(user)),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{_TOP / 'src'}:{_TOP}", "PINNACE_OFFLINE": "1"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
