"""Keep secret values out of errors, which end up in terminals, logs and bug reports.

Kubernetes hides the contents of an invalid secret, but prints a whole secret that a patch broke.
"""

from __future__ import annotations

from pinnace.model.objects import Kind

REDACTED = "<secret contents redacted>"
SECRET = Kind("", "v1", "Secret")


def without_values(errs: list[str]) -> list[str]:
    """Return the errors of a secret's fields with the expected value, without the actual one."""
    return [f"{expected}, got {REDACTED}" if got else expected for expected, got, _ in map(_parts, errs)]


def _parts(err: str) -> tuple[str, str, str]:
    return err.partition(", got ")
