"""Writes answers as YAML in the style of a Kubernetes server: strings that look like other values are quoted."""

from __future__ import annotations

import re
from typing import Any

import yaml

from pinnace.server.request.yaml_body import YamlError, by_looks

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT = "tag:yaml.org,2002:str"
_is_time = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([Tt ]\s*\d{1,2}:\d{1,2}:\d{1,2}(\.\d*)?(\s*(Z|[-+]\d{1,2}(:?\d{2})?))?)?"
).fullmatch
_is_sexagesimal = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?").fullmatch


def as_yaml(value: Any) -> bytes:
    dumped: str = yaml.dump(value, Dumper=_Answers, default_flow_style=False, allow_unicode=True)
    return dumped.encode()


class _Answers(_Dumper):  # type: ignore[misc]
    """A dumper class of its own, because PyYAML registers representers per class."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _written(dumper: Any, text: str) -> yaml.ScalarNode:
    node: yaml.ScalarNode = dumper.represent_scalar(_TEXT, text, style=_style(text))
    return node


def _style(text: str) -> str | None:
    if "\n" in text:
        return "|"
    return None if _looks_like_text(text) else '"'


def _looks_like_text(text: str) -> bool:
    if text in ("<<", "") or _is_time(text) or _is_sexagesimal(text):
        return False
    try:
        return isinstance(by_looks(text), str)
    except YamlError:  # A number that JSON does not have.
        return False


_Answers.add_representer(str, _written)
