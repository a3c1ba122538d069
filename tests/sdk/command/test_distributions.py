"""pinnace-sdk and pinnace: what each has, what each needs, and an operator that runs on pinnace-sdk alone."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from tests.clients.server_process import ServerProcess
from tests.sdk.command.exercise import exercise
from tools.distributions import (
    BROUGHT_ALONG,
    PACKAGE,
    ROOT,
    SDK_DEPENDENCIES,
    is_in_sdk,
    lay_out_rest,
    lay_out_sdk,
    name_of,
    source_files,
)

from pinnace.client.connect import connect
from pinnace.kinds.definitions import DATA, FOLDER, minors

_OPTIONAL = {"uvloop"}
"""Used where it is installed: asyncio's own loop is as good for an operator."""
_LAUNCH = """
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"pinnace-sdk does not bring {{name}}", name=name)

sys.meta_path.insert(0, Refusal())
from pinnace.sdk.command.main import main
main({arguments!r})
"""
Imports = set[str]


def imports_of(path: Path) -> Imports:
    """Return the modules that a file imports, also within functions, without those that only type checkers import."""
    return set(_imports(ast.parse(path.read_text())))


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import():
                yield from (alias.name for alias in child.names)
            case ast.ImportFrom(module=str(module)):
                yield from (f"{module}.{alias.name}" for alias in child.names)
        yield from _imports(child)


def module_file(name: str) -> Path | None:
    """Return the file of a module of pinnace, or of the module that has this name, relative to the package."""
    parts = name.split(".")[1:]
    for depth in range(len(parts), -1, -1):
        for path in (Path(*parts[:depth], "__init__.py"), Path(*parts[:depth]).with_suffix(".py") if depth else None):
            if path is not None and (PACKAGE / path).is_file():
                return path
    return None


SDK_SOURCES = [path for path in source_files() if is_in_sdk(path) and path.suffix == ".py"]


def test_no_module_of_pinnace_sdk_imports_one_that_it_lacks() -> None:
    lacking = {
        (str(path), name)
        for path in SDK_SOURCES
        for name in imports_of(PACKAGE / path)
        if name.startswith("pinnace.") and ((file := module_file(name)) is None or not is_in_sdk(file))
    }
    assert lacking == set()


def test_pinnace_sdk_declares_every_library_that_it_imports_and_at_most_eight() -> None:
    imported = {name.partition(".")[0] for path in SDK_SOURCES for name in imports_of(PACKAGE / path)}
    libraries = imported - sys.stdlib_module_names - {"pinnace"} - _OPTIONAL
    distributions = packages_distributions()
    names = {BROUGHT_ALONG.get(name) or distributions[name][0] for name in libraries}
    dynamic = {"google-re2", "tzdata"}  # Imported by name where a pattern is compiled, and by zoneinfo.
    assert names | dynamic == set(SDK_DEPENDENCIES)
    assert len(SDK_DEPENDENCIES) <= 8
    for part, whole in BROUGHT_ALONG.items():
        needs = {name_of(need).replace("-", "_") for need in requires(whole) or ()}
        assert part in needs, f"{whole} no longer depends on {part}"


def test_the_distributions_share_no_file_and_together_are_the_checkout(tmp_path: Path) -> None:
    lay_out_sdk(tmp_path / "sdk")
    lay_out_rest(tmp_path / "rest", "1.2.3")
    first, second = (
        {path.relative_to(tree) for path in tree.rglob("*") if path.is_file()}
        for tree in (tmp_path / "sdk/src/pinnace", tmp_path / "rest/src/pinnace")
    )
    assert first & second == set()
    assert first | second == set(source_files())
    sdk, rest = (tomllib.loads((tmp_path / name / "pyproject.toml").read_text()) for name in ("sdk", "rest"))
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sdk["project"]["scripts"] | rest["project"]["scripts"] == whole["scripts"]
    assert rest["project"]["dependencies"] == ["pinnace-sdk==1.2.3", *whole["dependencies"]]
    assert {name_of(need) for need in sdk["project"]["dependencies"]} == set(SDK_DEPENDENCIES)
    assert rest["project"]["entry-points"] == whole["entry-points"]


def brought_by(distributions: Iterable[str]) -> set[str]:
    """Return these distributions and, as far as this environment has them, those that pip installs with them."""
    reached: set[str] = set()
    waiting = [normal(name) for name in distributions]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            with suppress(PackageNotFoundError):
                waiting += [normal(name_of(need)) for need in requires(name) or () if "extra ==" not in need]
    return reached


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


async def test_an_operator_with_webhooks_apis_and_metrics_runs_on_pinnace_sdk_alone(tmp_path: Path) -> None:
    lay_out_sdk(tmp_path / "sdk")
    (tmp_path / "sdk" / "src" / FOLDER).mkdir()
    newest = f"{minors()[-1]}.zlib"
    shutil.copyfile(DATA / newest, tmp_path / "sdk" / "src" / FOLDER / newest)
    allowed = brought_by(SDK_DEPENDENCIES)
    refused = {
        module
        for module, owners in packages_distributions().items()
        if module not in ("pinnace", FOLDER) and not any(normal(owner) in allowed for owner in owners)
    }
    assert {"numpy", "uvloop", "apsw", "OpenSSL", "httptools", "typer", "rich"} <= refused
    server = ServerProcess.start(tmp_path, "--ephemeral", "--no-node")
    try:
        kubeconfig = server.await_kubeconfig()
        arguments = ["run", str(Path(__file__).with_name("complete_operator.py")), "--kubeconfig", str(kubeconfig)]
        code = _LAUNCH.format(refused=refused, arguments=arguments)
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "sdk" / "src"), "XDG_RUNTIME_DIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "complete is running\n"
            async with connect(kubeconfig=kubeconfig) as client:
                await exercise(client)
            assert explanation(tmp_path, "server/web")["outcome"] == "success"
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0
    finally:
        server.stop()


def explanation(place: Path, name: str) -> dict[str, object]:
    """Return the last reconcile of an object, as `pinnace-operator why` reports it."""
    ran = subprocess.run(
        [sys.executable, "-m", "pinnace.sdk.command.main", "why", name, "-o", "json"],
        env={**os.environ, "PYTHONPATH": str(place / "sdk" / "src"), "XDG_RUNTIME_DIR": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(ran.stdout)
    runs: list[dict[str, object]] = answers[0]["controllers"][0]["runs"]
    return runs[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "error: name the file of the operator"),
        (["run", "missing.py"], "error: there is no file missing.py"),
        (["why", "a", "b", "c"], "error: name one object, as website/blog or website blog"),
    ],
    ids=["no file", "missing file", "three words"],
)
def test_the_command_of_an_image_names_the_mistake(arguments: list[str], message: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pinnace.sdk.command.main", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith(message)
