"""The public names of `pinnace.sdk`, and its import time."""

from __future__ import annotations

import subprocess
import sys

import pinnace.sdk

HEAVY = ("aiohttp", "cryptography", "yaml", "apsw", "typer", "pinnace.server", "pinnace.schema.crd.definition")


def test_everything_public_is_there() -> None:
    assert [name for name in pinnace.sdk.__all__ if not hasattr(pinnace.sdk, name)] == []


def test_importing_it_imports_nothing_that_only_some_need() -> None:
    code = f"import sys, pinnace.sdk; print([name for name in {HEAVY} if name in sys.modules])"
    paths = {"PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
