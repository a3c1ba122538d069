"""Go type names of fields, where a schema does not have them: a table beside this file, read at the first error.

A line is a type and those of its fields whose type has a name in Go, `core.v1.Toleration effect=v1.TaintEffect`. Fields
behind an @ belong to an embedded struct, which Go names in their paths. The table is that of 1.36; types are named by
package, version and name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pinnace.kinds.golang.tables import row_of_schema
from pinnace.schema.golang.decode import GoFieldNames

TABLE = Path(__file__).with_suffix(".txt")
_NONE: Mapping[str, GoFieldNames] = {}


@cache
def of_type(name: str) -> Mapping[str, GoFieldNames]:
    """Return the named types of a schema's fields, by field. All others are as the schema says."""
    line = row_of_schema(TABLE, name)
    if line is None:
        return _NONE
    fields: dict[str, GoFieldNames] = {}
    embedded = ""
    for text in line.split():
        if text[0] == "@":
            embedded = text[1:]
            continue
        field, _, go_type = text.partition("=")
        fields[field] = GoFieldNames(go_type, embedded)
    return fields
