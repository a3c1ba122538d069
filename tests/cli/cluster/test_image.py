"""`pinnace image` loads, lists and removes images."""

from __future__ import annotations

from pathlib import Path

from tests.node.images.image_files import BuiltImage, digest, entry, layer
from typer.testing import CliRunner

from pinnace.cli.command_table import app


def test_an_image_is_loaded_listed_and_removed(tmp_path: Path) -> None:
    built = BuiltImage([layer(entry("file", b"x"))])
    file = built.write_docker(tmp_path / "web.tar", "web:v1")

    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["image", *words, "--directory", str(tmp_path / "node")])
        return result.exit_code, result.output

    assert run("load", str(file)) == (0, "loaded docker.io/library/web:v1\n")
    code, table = run("ls")
    assert code == 0
    assert table.splitlines()[1].split()[:2] == ["docker.io/library/web:v1", digest(built.configuration)[7:19]]
    assert run("rm", "web:v1") == (0, "removed web:v1\n")
    assert len(run("ls")[1].splitlines()) == 1
    assert run("rm", "web:v1")[0] == 1
    assert run("load")[0] == 1
    code, output = run("pull", "example.com/web:v1", "--offline")
    assert code == 1
    assert "allows pulls from loopback alone" in output
