"""`pinnace init`: create an extension project that works and passes its own tests."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.metadata import distributions, packages_distributions, requires
from pathlib import Path
from typing import Annotated

import typer

from pinnace import __version__
from pinnace.cli.failure import fail

_NAME = re.compile(r"^[a-z]([a-z0-9-]{0,50}[a-z0-9])?$")
_TAKEN = frozenset(("Any", "Cluster", "Context", "CustomResource", "Field", "Metadata", "Model", "Operator", "None"))
"""The names that the files below import: a kind of such a name gets a prefix."""

_OPERATOR = '''"""The kind {kind}, and the function that reconciles its objects."""

from __future__ import annotations

from typing import Any

from pinnace.sdk import Context, CustomResource, Field, Model, Operator


class {kind}Spec(Model):
    greeting: str = Field(default="hello", max_length=200, description="What to say.")


class {kind}Status(Model):
    config_map: str = ""


class {kind}(CustomResource[{kind}Spec, {kind}Status], group="example.com", version="v1", columns=[".spec.greeting"]):
    """A greeting, which the operator keeps in a ConfigMap."""


operator = Operator("{name}")


@operator.reconcile({kind}, owns=["v1/ConfigMap"])
async def reconcile(obj: {kind}, ctx: Context) -> None:
    made = await ctx.apply(config_map_of(obj))
    obj.status.config_map = made["metadata"]["name"]


def config_map_of(obj: {kind}) -> dict[str, Any]:
    data = {{"greeting": obj.spec.greeting}}
    return {{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": f"{{obj.name}}-greeting"}}, "data": data}}
'''

_TEST = '''"""The operator in a cluster inside the test."""

from __future__ import annotations

from {module} import {kind}, {kind}Spec, operator

from pinnace.sdk import Metadata
from pinnace.testing.cluster import Cluster


async def test_a_greeting_is_kept_in_a_config_map(cluster: Cluster) -> None:
    await cluster.run(operator)
    obj = {kind}(metadata=Metadata(name="one"), spec={kind}Spec(greeting="good morning"))
    await cluster.client.create(obj)
    await cluster.settle()
    made = await cluster.client.get("v1/ConfigMap", "one-greeting")
    assert made["data"] == {{"greeting": "good morning"}}


async def test_it_goes_with_its_owner(cluster: Cluster) -> None:
    await cluster.run(operator)
    await cluster.client.create({kind}(metadata=Metadata(name="one"), spec={kind}Spec()))
    await cluster.settle()
    await cluster.client.delete({kind}, "one")
    await cluster.settle()
    assert await cluster.client.get_or_none("v1/ConfigMap", "one-greeting") is None
'''

_PYPROJECT = """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["{distribution}>={version}"]

[project.optional-dependencies]
dev = ["pinnace[testing]"]

[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
py-modules = ["{module}"]

[tool.pytest.ini_options]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
pythonpath = ["."]
"""

_README = """# {name}

    pip install -e '.[dev]'
    pytest                                   # each test has its own cluster
    pinnace run {module}.py --dev            # in a temporary cluster
    pinnace run {module}.py                  # in the cluster that kubectl uses
    pinnace manifests {module}.py --out deploy
"""


def init(
    name: Annotated[str, typer.Argument(help="The extension's name, such as website-controller.")],
    directory: Annotated[Path | None, typer.Option(help="The directory to create.", show_default="./NAME")] = None,
) -> None:
    """Create an extension project: an operator, its tests, and a README.

    \b
    Examples:
      pinnace init website-controller
      pinnace init website-controller --directory ~/projects/websites
      cd website-controller && pytest && pinnace run website_controller.py --dev
    """
    if not _NAME.match(name):
        fail(f"{name!r} cannot be the name of an operator: write small letters, digits and -, beginning with a letter")
    module = _module(name)
    if _is_taken(module):
        fail(f"{module} is a Python word or module, which {module}.py would hide; choose another name")
    target = directory or Path(name)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        fail(f"{target} exists and is not empty; choose another name or --directory")
    for file, content in project(name).items():
        path = target / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    print(f"created {target}; next:")
    print(f"  cd {target} && pytest && pinnace run {module}.py --dev")


def project(name: str) -> dict[str, str]:
    """Return the files of a new project, by path."""
    module = _module(name)
    kind = "".join(word.capitalize() for word in name.removesuffix("-controller").removesuffix("-operator").split("-"))
    if kind in _TAKEN:
        kind = f"My{kind}"
    words = {"name": name, "module": module, "kind": kind, "version": __version__, "distribution": _distribution()}
    return {
        f"{module}.py": _OPERATOR.format(**words),
        f"test_{module}.py": _TEST.format(**words),
        "pyproject.toml": _PYPROJECT.format(**words),
        "README.md": _README.format(**words),
    }


def _is_taken(module: str) -> bool:
    """Return whether Python or an installed package that does not use pinnace has this name."""
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module == "pinnace":
        return True
    packages = packages_distributions().get(module, ())
    return any(not any(need.startswith("pinnace") for need in requires(package) or ()) for package in packages)


def _distribution() -> str:
    """Return the distribution that an operator needs: a release has it apart, a checkout is pinnace as a whole."""
    return "pinnace-sdk" if any(distributions(name="pinnace-sdk")) else "pinnace"


def _module(name: str) -> str:
    return name.replace("-", "_")
