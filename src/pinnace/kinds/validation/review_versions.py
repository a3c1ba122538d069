"""The versions of reviews that a webhook understands: of admission or of conversion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinnace.kinds.validation.fields import find_repeats, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, required

REVIEW_VERSIONS = ("v1", "v1beta1")
"""The versions that the server can send."""


def validate_review_versions(
    versions: Sequence[str], path: str, *, must_be_known: bool, detail: str = ""
) -> Iterator[FieldError]:
    """Yield the errors of a list of versions. `detail` says what is expected of an empty one."""
    if not versions:
        yield required(path, detail)
        return
    repeated = find_repeats(versions)
    for i, version in enumerate(versions):
        if repeated[i]:
            yield invalid(f"{path}[{i}]", version, "duplicate version")
        else:
            yield from validate_name(version, names.dns1035_label, f"{path}[{i}]")
    if must_be_known and not any(version in REVIEW_VERSIONS for version in versions):
        yield invalid(path, list(versions), f"must include at least one of {', '.join(REVIEW_VERSIONS)}")
