"""YAML is read by the rules of the real server."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.serving.request.yaml_body import YamlError, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("On", True),
        ("no", False),
        ("~", None),
        ("", None),
        ("0o17", 15),
        ("017", 15),
        ("08", 8),
        ("0x1F", 31),
        ("0b11", 3),
        ("1_000", 1000),
        ("1e3", 1000),
        (".5", 0.5),
        ("+1", 1),
        ("-0", 0),
        ("12345678901234567890", 12345678901234567890),
        ("123456789012345678901234567890", 1.2345678901234568e29),
        ("2020-01-01", "2020-01-01"),
        ("12:30:45", "12:30:45"),
        ('"5"', "5"),
        ("!!str 5", "5"),
        ('!!int "5"', 5),
        ("!!binary aGk=", "hi"),
        ("!foo bar", "bar"),
        ("<<", "<<"),
        ("|\n  a\n  b", "a\nb\n"),
        ("{a: 1, true: 2, 3: x}", {"a": 1, "true": 2, "3": "x"}),
    ],
)
def test_scalars_mean_what_they_mean_to_kubernetes(text: str, value: Any) -> None:
    assert read_yaml(f"v: {text}\n".encode()).value == {"v": value}


def test_aliases_are_copies_and_merges_give_way() -> None:
    body = read_yaml(b"a: &a {x: 1, z: 2}\nb:\n  <<: *a\n  x: 3\nc: *a\n").value
    assert body == {"a": {"x": 1, "z": 2}, "b": {"x": 3, "z": 2}, "c": {"x": 1, "z": 2}}
    assert body["a"] is not body["c"]


def test_only_the_first_document_is_read() -> None:
    assert read_yaml(b"---\na: 1\n---\nb: 2\n").value == {"a": 1}
    assert read_yaml(b"# nothing\n").value is None


def test_repeated_keys_are_reported_with_their_line() -> None:
    body = read_yaml(b"m: {l: {a: b, a: c}}\nd: {a: b}\nd: {b: c}\n")
    assert body.value == {"m": {"l": {"a": "c"}}, "d": {"b": "c"}}
    assert body.repeated == ('line 1: key "a" already set in map', 'line 3: key "d" already set in map')


@pytest.mark.parametrize(
    ("text", "err"),
    [
        ("a:\n  b:\n    c: 1\n    v: - a\n", "yaml: line 4: block sequence entries are not allowed in this context"),
        ("a: b: c\n", "yaml: mapping values are not allowed in this context"),
        ("\tfoo: 1\n", "yaml: found character that cannot start any token"),
        ("a: &a\n  b: *a\n", "yaml: anchor 'a' value contains itself"),
        ("a: *unknown\n", "yaml: unknown anchor 'unknown' referenced"),
        ('a: {name: "x}\n', "yaml: line 2: found unexpected end of stream"),
        ("a: {name: x\n", "yaml: line 1: did not find expected ',' or '}'"),
        ("a: b\nm: [1, 2\nc: d\n", "yaml: line 2: did not find expected ',' or ']'"),
        ("a:\n  b:\n    c: d\n   e: f\n", "yaml: line 3: did not find expected key"),
        ("a: b\nq: 'abc\n", "yaml: line 3: found unexpected end of stream"),
        ("a: {? [a] : b}\n", 'yaml: invalid map key: []interface {}{"a"}'),
        ("a: {null: 4}\n", "unsupported map key of type: %!s(<nil>), key: <nil>, value: 4"),
        ("a: .inf\n", "json: unsupported value: +Inf"),
        ("%YAML 1.2\n---\na: 1\n", "yaml: found incompatible YAML document"),
    ],
)
def test_unreadable_yaml_is_reported_as_by_the_real_server(text: str, err: str) -> None:
    with pytest.raises(YamlError) as caught:
        read_yaml(text.encode())
    assert str(caught.value) == err


def test_aliases_cannot_blow_up_a_small_body() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 9) + "]" for n in range(1, 12)]
    with pytest.raises(YamlError, match="excessive aliasing"):
        read_yaml("\n".join(lines).encode())


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "- " * 100_000 + "a", "{a: " * 5000])
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(YamlError, match="max depth"):
        read_yaml(text.encode())
