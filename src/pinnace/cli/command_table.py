"""Every command of pinnace by name. What a command needs is imported when it is asked for, and not before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from pinnace.cli.flags import KubectlCommand

__all__ = ["COMMANDS", "app"]

_GLOBAL = ("--kubeconfig", "--context", "--namespace", "-n")


@dataclass(frozen=True, slots=True)
class Listed:
    """One command: what `pinnace --help` says of it, and where it is written."""

    module: str
    function: str
    says: str
    bare: Mapping[str, str] = field(default_factory=dict)
    """Flags that mean something without a value, and what."""


_DRY = {"--dry-run": "client"}

SECTIONS: dict[str, dict[str, Listed]] = {
    "A cluster": {
        "up": Listed("up", "up", "Start a cluster in the foreground."),
        "controllers": Listed("controllers", "controllers", "Run the built-in controllers as a process of their own."),
        "version": Listed("version", "version", "Print the version of pinnace and what it can serve."),
        "migrate-storage": Listed(
            "migrate_storage", "migrate", "Rewrite a custom kind's objects in its stored version."
        ),
        "why-denied": Listed("why_denied", "why_denied", "Say why a user may not do something, and what would help."),
    },
    "Extensions": {
        "init": Listed("init", "init", "Begin an extension: a project that passes its own tests."),
        "run": Listed("run", "run", "Run the operator in a file; it starts again when the file is saved."),
        "manifests": Listed("manifests", "manifests", "Print all that a real cluster needs to run an operator."),
        "plugin": Listed("plugin", "plugin", "Make kubectl NAME of a Python file, or what krew needs of it."),
        "models": Listed("models", "models", "Print typed classes for the custom kinds of a CRD."),
        "why": Listed("why", "why", "Say what made an operator look at an object, and what came of it."),
    },
    "What kubectl does, without kubectl": {
        "get": Listed("get", "get", "Show objects, as a table or in full."),
        "describe": Listed("describe", "describe", "Show an object in words, with its events."),
        "apply": Listed("apply", "apply", "Bring objects to how files say they should be.", bare=_DRY),
        "delete": Listed(
            "delete", "delete", "Delete objects, and wait until they are gone.", bare=_DRY | {"--cascade": "background"}
        ),
        "watch": Listed("watch", "watch", "Show objects, then each change as it happens."),
        "logs": Listed("logs", "logs", "Print what the containers of a pod have written."),
        "exec": Listed("exec", "exec_", "Run a command in a container."),
        "port-forward": Listed("port_forward", "port_forward", "Reach the ports of a pod from here."),
    },
}  # fmt: skip
COMMANDS = {name: listed for section in SECTIONS.values() for name, listed in section.items()}


class Commands(TyperGroup):
    """A group whose commands are read from the table above."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        listed = COMMANDS.get(cmd_name)
        if listed is None:
            return None
        function = getattr(import_module(f"pinnace.cli.commands.{listed.module}"), listed.function)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(cmd_name, cls=KubectlCommand)(function)
        command: Any = typer.main.get_command(alone)
        command.bare = listed.bare
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _globals_last(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib  # noqa: PLC0415 - of use only to those who mistype

            near = difflib.get_close_matches(args[0], COMMANDS, n=3, cutoff=0.5)
            typer.echo(f'error: unknown command "{args[0]}" for "pinnace"', err=True)
            if near:
                typer.echo("\nDid you mean this?\n" + "".join(f"\t{name}\n" for name in near), err=True)
            typer.echo("pinnace --help lists what there is.", err=True)
            ctx.exit(1)
        found: tuple[Any, Any, list[str]] = super().resolve_command(ctx, args)
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, listed.says) for name, listed in commands.items()])


def _globals_last(args: list[str]) -> list[str]:
    """`pinnace -n web get pods` is `pinnace get -n web pods`: kubectl takes these flags on either side."""
    moved: list[str] = []
    rest = list(args)
    while rest and rest[0].startswith("-"):
        flag = rest[0].partition("=")[0]
        if flag not in _GLOBAL and not rest[0].startswith("-n"):
            break
        takes_next = rest[0] in _GLOBAL
        moved += rest[: 2 if takes_next else 1]
        rest = rest[2 if takes_next else 1 :]
    return [*rest[:1], *moved, *rest[1:]]


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _pinnace() -> None:
    """A Kubernetes control plane that installs with pip, and the tools to extend it.

    \b
    Five minutes:
      pinnace up --merge                  a cluster, ready in a second; kubectl talks to it
      pinnace get namespaces              or this, where there is no kubectl
      pinnace init website-controller     an operator that passes its own tests
      pinnace run website_controller.py --dev

    pinnace COMMAND --help explains each command, with examples.
    """
