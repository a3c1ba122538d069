"""The output of pinnace manifests: YAML as Go reads it, and a complete image."""

from __future__ import annotations

import textwrap
from pathlib import Path

import yaml
from typer.testing import CliRunner

from pinnace import __version__
from pinnace.cli.command_table import app
from pinnace.serving.request.yaml_body import read_yaml

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


def test_an_image_has_what_the_operator_imports_and_its_project_needs(tmp_path: Path) -> None:
    (tmp_path / "points.py").write_text(f"import shapes\nimport colours.red\n{OPERATOR}")
    (tmp_path / "shapes.py").touch()
    (tmp_path / "unused.py").touch()
    (tmp_path / "colours").mkdir()
    (tmp_path / "colours" / "__init__.py").touch()
    (tmp_path / "colours" / "red.py").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "points"\ndependencies = ["lightkube>=0.17"]')
    out = tmp_path / "deploy"
    result = CliRunner().invoke(app, ["manifests", str(tmp_path / "points.py"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    lines = (out / "Dockerfile").read_text().splitlines()
    assert f'RUN pip install --no-cache-dir "pinnace-sdk>={__version__}" "lightkube>=0.17"' in lines
    assert "COPY points.py shapes.py ./" in lines
    assert "COPY colours colours/" in lines
    assert not any("unused" in line for line in lines)


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
