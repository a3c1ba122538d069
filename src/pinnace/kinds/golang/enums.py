"""The values that a field may have, for the published OpenAPI documents: a table beside this file, read on first use.

A line is a type and its fields, separated by tabs, `apps.v1.DeploymentStrategy type=Recreate|RollingUpdate`; for a list
or map, the values of its items. Schemas lack enums, because the kinds' own validation reports these errors. The table
is that of 1.37; types are named by package, version and name.
"""

from __future__ import annotations

from pathlib import Path

from pinnace.kinds.golang.tables import row_of_schema
from pinnace.model.objects import Object

TABLE = Path(__file__).with_suffix(".txt")


def describe(name: str, properties: Object) -> None:
    """Add enums to the properties of a definition, given by its schema name."""
    line = row_of_schema(TABLE, name)
    if line is None:
        return
    for text in line.split("\t"):
        field, _, values = text.partition("=")
        schema = properties.get(field)
        if schema is not None:  # Older minor versions lack some fields.
            allowed = values.split("|")
            if element := schema.get("items") or schema.get("additionalProperties"):
                element["enum"] = allowed
                continue
            schema["enum"] = allowed
            listed = "".join(f'\n - `"{value}"`' for value in allowed)
            schema["description"] = f"{schema.get('description', '')}\n\nPossible enum values:{listed}"
