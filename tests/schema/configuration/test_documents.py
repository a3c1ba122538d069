"""Configuration files are decoded strictly, and a file with errors does not replace one that is in effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinnace.process.clock import SystemClock
from pinnace.schema.configuration.documents import TEXT, decode, items, structure
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.schema.configuration.reloading import ReloadedFile

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: Example\n"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "expected an object of kind Example, found NoneType"),
        ("- a", "expected an object of kind Example, found list"),
        ("a: [", "is not YAML: line 1"),
        ("apiVersion: v1\nkind: Pod", "expected kind Example of apiVersion apiserver.config.k8s.io/v1, found kind Pod"),
        (HEAD + "names: [1]", "cannot unmarshal number"),
        (HEAD + "name: [a]", 'strict decoding error: unknown field "name"'),
        (HEAD + "names: []\nnames: []", 'key "names" already set'),
        ("a: " + "[" * 5000, "is not YAML"),
    ],
    ids=["empty", "list", "cut", "another kind", "wrong type", "unknown field", "twice", "deep"],
)
def test_a_bad_document_is_refused(content: str, error: str) -> None:
    fields = {"names": items(TEXT), "inner": structure(name=TEXT)}
    with pytest.raises(ConfigurationError) as refused:
        decode(content.encode(), Path("file"), kind="Example", versions=("v1",), fields=fields)
    assert error in str(refused.value)


async def test_a_file_with_errors_is_tried_again_after_a_while_and_counted(tmp_path: Path) -> None:
    path, applied = tmp_path / "file", []
    path.write_bytes(b"1")

    def apply(content: bytes) -> None:
        if content == b"bad":
            raise ConfigurationError("bad")
        applied.append(content)

    file = ReloadedFile.begin(path, apply, SystemClock())
    in_effect = file.applied
    for content, is_retry in ((b"bad", False), (b"bad", False), (b"bad", True), (b"2", False), (b"2", True)):
        path.write_bytes(content)
        await file.check(is_retry=is_retry)
    assert applied == [b"1", b"2"]
    assert file.reloads == {"failure": 2, "success": 1}
    assert file.applied != in_effect
