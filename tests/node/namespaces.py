"""Whether this machine lets its users make namespaces, without which there are no pods."""

from __future__ import annotations

import functools
import os
import subprocess

import pytest

REQUIRE_NAMESPACES = "PINNACE_REQUIRE_NAMESPACES"


def need_namespaces() -> None:
    """Skip the test on a machine that refuses namespaces; fail where they are asked for, as in CI."""
    reason = _refusal()
    if not reason:
        return
    if os.environ.get(REQUIRE_NAMESPACES):
        pytest.fail(f"{reason}, and {REQUIRE_NAMESPACES} asks for them")
    pytest.skip(reason)


@functools.cache
def _refusal() -> str:
    command = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return "the program unshare is missing"
    return f"this machine refuses namespaces: {done.stderr.strip()}" if done.returncode else ""
