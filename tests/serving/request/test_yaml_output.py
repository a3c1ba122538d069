"""YAML answers parse back to the same value and look like those of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.server.in_process import InProcess

from pinnace.serving.request.yaml_body import read_yaml
from pinnace.serving.request.yaml_output import _Answers, as_yaml

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_VALUES)
def test_written_yaml_reads_as_the_same_value(value: Any) -> None:
    assert read_yaml(as_yaml({"value": value})).value == {"value": value}


_LINES = st.text(alphabet="ab \n:-#'\"{}[]|>%@`0e1.", max_size=120)
_DEEP = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | _LINES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | _LINES, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), _DEEP, min_size=1))
def test_the_bytes_are_those_that_libyaml_writes(value: dict[str, Any]) -> None:
    dumped = yaml.dump(value, Dumper=_Answers, default_flow_style=False, allow_unicode=True)
    assert as_yaml(value).decode() == dumped.removesuffix("...\n")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", "plain"),
        ("two words", "two words"),
        ("", '""'),
        ("1", '"1"'),
        ("1.5", '"1.5"'),
        ("0x1f", '"0x1f"'),
        ("y", '"y"'),
        ("no", '"no"'),
        ("null", '"null"'),
        (".inf", '".inf"'),
        ("1:30", '"1:30"'),
        ("2026-01-01T00:00:00Z", '"2026-01-01T00:00:00Z"'),
        ("a: b", "'a: b'"),
        ("#", "'#'"),
        ("a\nb\n", "|\n  a\n  b"),
    ],
)
def test_text_is_quoted_only_where_it_would_be_read_as_something_else(text: str, written: str) -> None:
    assert as_yaml({"a": text}).decode() == f"a: {written}\n"


async def test_errors_are_yaml_for_clients_that_accept_yaml(api: InProcess) -> None:
    refused = await api.get(f"{CONFIG_MAPS}/none", accept="application/yaml")
    assert (refused.status, refused.header("content-type")) == (404, ["application/yaml"])
    assert refused.body.decode().splitlines()[:3] == ["apiVersion: v1", "code: 404", "details:"]
    mixed = await api.get(f"{CONFIG_MAPS}/none", accept="application/yaml;q=0.5, application/json")
    assert mixed.header("content-type") == ["application/json"]
