"""Which texts a field may have, for those who read the API's description: a table beside this file, read when one asks.

A line is a type and its fields, separated by tabs, `apps.v1.DeploymentStrategy type=Recreate|RollingUpdate`; of a list
or map, it is what its items may be. Schemas are without them, since errors are told by the kinds' own rules. It holds
for 1.36; types are called by package, version and name.
"""

from __future__ import annotations

from pathlib import Path

from pinnace.kinds.golang.tables import row_of_schema
from pinnace.model.objects import Object

TABLE = Path(__file__).with_suffix(".txt")


def describe(name: str, properties: Object) -> None:
    """Write into the properties of a definition, which is known by its name in the schemas, what they may be."""
    line = row_of_schema(TABLE, name)
    if line is None:
        return
    for text in line.split("\t"):
        field, _, values = text.partition("=")
        schema = properties.get(field)
        if schema is not None:  # Older minors lack some.
            allowed = values.split("|")
            if element := schema.get("items") or schema.get("additionalProperties"):
                element["enum"] = allowed
                continue
            schema["enum"] = allowed
            listed = "".join(f'\n - `"{value}"`' for value in allowed)
            schema["description"] = f"{schema.get('description', '')}\n\nPossible enum values:{listed}"
