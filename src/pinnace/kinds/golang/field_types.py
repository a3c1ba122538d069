"""What Go calls the types of fields, where a schema cannot tell: a table beside this file, read at the first error.

A line is a type and those of its fields for whose type Go has a name, `core.v1.Toleration effect=v1.TaintEffect`.
Fields behind an @ are not the type's own but of a struct that it embeds, which Go names in their paths. It holds for
1.36; types are called by package, version and name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pinnace.kinds.golang.tables import row_of_schema
from pinnace.schema.golang.decode import GoField

TABLE = Path(__file__).with_suffix(".txt")
_NONE: Mapping[str, GoField] = {}


@cache
def of_type(name: str) -> Mapping[str, GoField]:
    """The fields by name, for the name of a schema: io.k8s.api.core.v1.PodSpec. Others are as the schema says."""
    line = row_of_schema(TABLE, name)
    if line is None:
        return _NONE
    fields: dict[str, GoField] = {}
    embedded = ""
    for text in line.split():
        if text[0] == "@":
            embedded = text[1:]
            continue
        field, _, go_type = text.partition("=")
        fields[field] = GoField(go_type, embedded)
    return fields
