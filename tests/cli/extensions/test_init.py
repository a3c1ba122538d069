"""pinnace init: names that would not work are refused, and every other gives a project that does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pinnace.cli.command_table import app
from pinnace.cli.extensions.init import project


@pytest.mark.parametrize("name", ["class", "pytest", "pinnace", "operator", "import"])
def test_a_name_that_python_knows_is_refused(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["init", name, "--directory", str(tmp_path / "project")])
    assert result.exit_code == 1
    assert f"{name}.py would hide; choose another name" in result.output
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize("name", ["cluster-operator", "model-controller", "field-operator"])
def test_a_kind_is_not_called_as_something_that_the_project_imports(name: str) -> None:
    files = project(name)
    (kind,) = re.findall(r"^class (\w+)\(CustomResource", files[f"{name.replace('-', '_')}.py"], re.MULTILINE)
    imported = re.findall(r"^from pinnace\S* import (.+)$", "\n".join(files.values()), re.MULTILINE)
    assert kind not in ", ".join(imported).split(", ")


def test_only_the_operator_is_packaged(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["init", "greeter-controller", "--directory", str(tmp_path)])
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"] == {"py-modules": ["greeter_controller"]}
    assert (tmp_path / "greeter_controller.py").exists()
