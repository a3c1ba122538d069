"""Skips tests of pods where users may not make namespaces."""

from __future__ import annotations

import functools
import subprocess

from tests.machine import do_without, need


def need_namespaces() -> None:
    """Skip the test on a machine that refuses namespaces."""
    need("unshare")
    if reason := _refusal():
        do_without(reason)


@functools.cache
def _refusal() -> str:
    command = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return f"this machine refuses namespaces: {done.stderr.strip()}" if done.returncode else ""
