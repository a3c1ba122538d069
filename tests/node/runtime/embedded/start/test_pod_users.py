"""The user namespace of a pod bounds what its processes take from the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.machine import need
from tests.node.namespaces import need_namespaces
from tests.node.ordinary_user import keep_checkout_reachable

import pinnace

_UID = 64_242
"""A user without other processes."""
_MOST = 12
_BOMB = f"""
import os, signal
from pinnace.node.machine import linux
from pinnace.node.machine.subordinate_ids import enter_user_namespace
from pinnace.node.runtime.embedded.start import pod_users

pod_users.most_processes_of_pods = lambda: {_MOST}
enter_user_namespace()
pods = [pod_users.enter_pod_namespaces(pod_users.same_ids(1), 0) for _ in range(2)]
started = []
def start():
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    started.append(pid)
if os.fork() == 0:
    linux.setns(pods[0].namespace, linux.CLONE_NEWUSER)
    try:
        while len(started) < 100:
            start()
    except BlockingIOError:
        print("refused after", len(started))
    for pid in started:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)
os.wait()
for _ in range({_MOST}):
    start()
print("the node goes on", flush=True)
for pid in started:
    os.kill(pid, signal.SIGKILL)
"""


def test_pods_of_an_ordinary_user_leave_process_numbers_to_the_machine(tmp_path: Path) -> None:
    need_namespaces()
    environment = {**os.environ, "PYTHONPATH": str(Path(pinnace.__file__).parents[1])}
    prefix = []
    if os.geteuid() == 0:
        need("setpriv")
        prefix = keep_checkout_reachable(tmp_path)
        prefix += ["setpriv", f"--reuid={_UID}", f"--regid={_UID}", "--clear-groups"]
    command = [*prefix, sys.executable, "-c", _BOMB]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd="/")
    refused, goes_on = done.stdout.splitlines()
    assert int(refused.removeprefix("refused after ")) < _MOST, done.stderr
    assert goes_on == "the node goes on"
