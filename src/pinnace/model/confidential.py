"""What errors may not quote: they end up in terminals, logs and reports of bugs, where no secret belongs.

Kubernetes hides the contents of a secret that is invalid, but quotes all of one that a patch has broken.
"""

from __future__ import annotations

from pinnace.model.objects import Kind

REDACTED = "<secret contents redacted>"
SECRET = Kind("", "v1", "Secret")


def without_values(errs: list[str]) -> list[str]:
    """The errors of a secret's fields, each with what was expected and not with what was found."""
    return [f"{expected}, got {REDACTED}" if got else expected for expected, got, _ in map(_parts, errs)]


def _parts(err: str) -> tuple[str, str, str]:
    return err.partition(", got ")
