"""Read the tables of Kubernetes' types beside these modules: a line is a type name and its facts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def rows(table: Path) -> Mapping[str, str]:
    """Return the lines of a table by type name. A table is read once, on first use."""
    cells: dict[str, str] = {}
    for line in table.read_text(encoding="ascii").splitlines():
        name, *rest = line.split(maxsplit=1)
        cells[name] = rest[0] if rest else ""
    return cells


def row_of_schema(table: Path, name: str) -> str | None:
    """Return the line for a schema name such as io.k8s.api.core.v1.PodSpec; None where the table has none, and for
    custom kinds."""
    return rows(table).get(".".join(name.split(".")[-3:])) if name.startswith("io.k8s.") else None
