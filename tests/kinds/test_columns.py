"""Tables show what a real server shows: the same columns, and in them the same cells for the same objects."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pinnace.kinds import catalog, cells
from pinnace.kinds.definitions import Definitions
from pinnace.model.resources import Registry, Resource

HERE = Path(__file__).parent
COLUMNS_1_36 = (HERE / "table_columns_1_36.txt").read_text()
"""The columns of every list of a real kube-apiserver 1.36."""
ROWS_1_36 = [json.loads(line) for line in (HERE / "table_rows_1_36.jsonl").read_text().splitlines()]
"""Objects, the moment of asking, and the cells that a real kube-apiserver 1.36 made of them.

One was edited: the moment of autoscaler h3 is one second earlier than noted, since its answer was made just before
the second changed.
"""
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry(catalog.resources(Definitions.load("1.36")))


def served(registry: Registry, url: str) -> Resource:
    *prefix, version, plural = url.strip("/").split("/")
    group = prefix[1] if len(prefix) > 1 else ""
    result = registry.find(group, version, plural)
    assert result is not None
    return result


def test_every_list_has_the_columns_of_a_real_server(registry: Registry) -> None:
    lines: list[str] = []
    for resource in registry:
        if "list" not in resource.verbs or (resource.deprecation and "beta" in resource.version):
            continue
        lines.append(f"{resource.kind.api_version}/{resource.plural}")
        titled = [column for column in resource.columns if column.has_title]
        lines += [f"   {column.name}|{column.type}|{column.format}|{column.priority}" for column in titled]
    assert lines == COLUMNS_1_36.splitlines()


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{row['url']}/{row['object']['metadata']['name']}") for row in ROWS_1_36]
)
def test_the_cells_are_those_of_a_real_server(registry: Registry, row: dict[str, Any]) -> None:
    resource = served(registry, row["url"])
    stored = resource.to_stored(row["object"])
    now = datetime.fromisoformat(row["now"])
    assert [column.value(stored, now) for column in resource.columns] == row["cells"]


def test_columns_stand_an_object_with_nothing_in_it(registry: Registry) -> None:
    for resource in registry:
        for column in resource.columns:
            column.value({}, NOW)
            column.value({"metadata": {"name": "x"}, "spec": {}, "status": {}}, NOW)


def test_definitions_show_their_scope_and_versions_since_1_37(registry: Registry) -> None:
    url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    newest = served(Registry(catalog.resources(Definitions.load("1.37"))), url)
    definition = {
        "metadata": {"name": "widgets.example.com", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "shortNames": ["wi", "w"]},
            "versions": [
                {"name": "v2", "served": True, "storage": True},
                {"name": "v1", "served": True, "storage": False},
                {"name": "v0", "served": False, "storage": False},
            ],
        },
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }
    row = {column.name: column.value(definition, NOW) for column in newest.columns}
    assert list(row) == ["Name", "Scope", "Versions", "Created At", "Group", "Kind", "ShortNames", "Established"]
    assert list(row.values())[1:4] == ["Namespaced", "v1,v2(storage)", "2026-01-02T03:04:05Z"]
    assert list(row.values())[4:] == ["example.com", "Widget", "wi,w", True]
    assert [column.name for column in newest.columns if column.priority == 0] == list(row)[:4]
    assert [column.name for column in served(registry, url).columns] == ["Name", "Created At"]
    for column in newest.columns:
        column.value({}, NOW)


def test_columns_are_described_as_the_api_documents_their_fields(registry: Registry) -> None:
    pods = served(registry, "/api/v1/pods")
    node = next(column for column in pods.columns if column.name == "Node")
    assert node.description.startswith("NodeName indicates in which node this pod is scheduled.")
    binding = served(registry, "/apis/rbac.authorization.k8s.io/v1/rolebindings")
    role = next(column for column in binding.columns if column.name == "Role")
    assert role.description.endswith("the Authorizer must return an error."), "as of v1beta1: nothing on immutability"
    assert not any(column.description.startswith("io.k8s.") for resource in registry for column in resource.columns)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "<invalid>"),
        (-1.5, "0s"),
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (11000, "3h3m"),
        (28799, "7h59m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (180000, "2d2h"),
        (691200, "8d"),
        (63071999, "729d"),
        (63072000, "2y"),
        (63072000 + 86400 * 3, "2y3d"),
        (252288000, "8y"),
    ],
)
def test_durations_are_short(seconds: float, expected: str) -> None:
    assert cells.format_duration(seconds) == expected


def test_an_object_without_a_birthday_has_an_unknown_age() -> None:
    assert cells.age({"metadata": {"name": "x"}}, NOW) == "<unknown>"
