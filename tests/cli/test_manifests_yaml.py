"""The YAML of manifests, as Go reads it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import yaml
from typer.testing import CliRunner

from pinnace.cli.commands import app
from pinnace.server.yaml_bodies import read_yaml

OPERATOR = textwrap.dedent("""
    from pinnace.sdk import CustomResource, Model, Operator


    class PointSpec(Model):
        x: int = 1
        y: int = 1
        on: str = "n"


    class Point(CustomResource[PointSpec, None], group="example.com", version="v1"):
        pass


    operator = Operator("points", kinds=[Point])
    """)


def test_names_and_values_that_go_takes_for_booleans_stand_in_quotes(tmp_path: Path) -> None:
    file = tmp_path / "points.py"
    file.write_text(OPERATOR)
    result = CliRunner().invoke(app, ["manifests", str(file)])
    assert result.exit_code == 0, result.output
    crd = next(text for text in result.stdout.split("---\n") if "kind: CustomResourceDefinition" in text)
    read = read_yaml(crd.encode()).value
    assert read == yaml.safe_load(crd)
    fields = read["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(fields) == {"x", "y", "on"}
    assert fields["on"]["default"] == "n"
