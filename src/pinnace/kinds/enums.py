"""Which texts a field may have, for those who read the API's description: a table beside this file, read when one asks.

A line is a type and its fields, separated by tabs, `apps.v1.DeploymentStrategy type=Recreate|RollingUpdate`; of a list,
it is what its items may be. Schemas are without them, since faults are told by the kinds' own rules. It holds for 1.36;
types are called by package, version and name.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from pinnace.kinds.type_tables import row_of_schema

TABLE = Path(__file__).with_suffix(".txt")


def described(name: str, body: bytes) -> bytes:
    """A definition in JSON, by its name in the schemas, with the texts that its fields may have."""
    line = row_of_schema(TABLE, name)
    if line is None:
        return body
    definition = orjson.loads(body)
    for text in line.split("\t"):
        field, _, values = text.partition("=")
        schema = definition.get("properties", {}).get(field)
        if schema is not None:  # Older minors lack some.
            schema.get("items", schema)["enum"] = values.split("|")
    return orjson.dumps(definition)
