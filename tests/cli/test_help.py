"""The help teaches, the unknown is suggested, and nothing is imported that is not asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pinnace
from pinnace.cli.command_table import COMMANDS, app, load_command

SOURCES = Path(pinnace.__file__).parents[1]
KUBECTLS = ["get", "describe", "apply", "delete", "watch", "logs", "exec", "port-forward"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there_and_explains_itself(name: str) -> None:
    assert callable(load_command(COMMANDS[name]))
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"pinnace {name}" in result.stdout.replace("root", "pinnace")


@pytest.mark.parametrize("name", [*KUBECTLS, "run", "models", "why"])
def test_help_shows_examples(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert "Examples:\n" in result.stdout
    assert result.stdout.count(f"pinnace {name}") >= 3


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "version"])
def test_the_help_of_every_command_has_a_line_to_copy(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    copied = [line for line in result.stdout.splitlines() if line.startswith("    ") and f"pinnace {name}" in line]
    assert copied, result.stdout


def test_a_word_that_is_nearly_a_command_is_suggested() -> None:
    result = CliRunner().invoke(app, ["descirbe", "pod"])
    assert result.exit_code == 1
    assert result.stderr.startswith(
        'error: unknown command "descirbe" for "pinnace"\n\nDid you mean this?\n\tdescribe\n'
    )


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["--help"], ["aiohttp", "pydantic", "pinnace.cluster.cluster", "pinnace.sdk.operator.operator", "yaml"]),
        (["get", "--help"], ["pinnace.sdk", "pinnace.cluster.cluster", "pinnace.sdk.operator.operator", "aiohttp"]),
        (["up", "--help"], ["pinnace.sdk", "pinnace.sdk.operator.operator", "pinnace.cli.kubectl.get", "aiohttp"]),
    ],
    ids=["help", "get", "up"],
)
def test_only_what_is_asked_for_is_imported(arguments: list[str], forbidden: list[str]) -> None:
    program = (
        f"import sys; sys.argv = ['pinnace', *{arguments!r}]; sys.path.insert(0, {str(SOURCES)!r})\n"
        "from pinnace.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {forbidden!r} if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stderr == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-n", "web", "get", "pods"], ["get", "-n", "web", "pods"]),
        (["--kubeconfig=x", "--context", "y", "get"], ["get", "--kubeconfig=x", "--context", "y"]),
        (["-nweb", "get", "-o", "name"], ["get", "-nweb", "-o", "name"]),
    ],
)
def test_global_flags_may_come_first(arguments: list[str], expected: list[str]) -> None:
    from pinnace.cli.command_table import _globals_last  # noqa: PLC0415 - what is tested has no other front door

    assert _globals_last(arguments) == expected


def test_a_flag_that_is_neither_true_nor_false_is_refused() -> None:
    result = CliRunner().invoke(app, ["delete", "cm", "x", "--wait=perhaps"])
    assert result.exit_code == 1
    assert 'invalid argument "perhaps" for "--wait" flag' in result.stderr
