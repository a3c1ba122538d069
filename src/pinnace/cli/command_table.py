"""Every command of pinnace by name. The modules of a command are imported only when it runs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pinnace.cli.flags.shared import KubectlCommand

_GLOBAL = ("--kubeconfig", "--context", "--namespace", "-n")


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command: its line in `pinnace --help`, and its module and function."""

    module: str
    summary: str
    function: str = ""
    """The name of the module's function, unless it is that of the module."""
    bare: Mapping[str, str] = field(default_factory=dict)
    """Flags that may stand without a value, and the value that they have then."""


_DRY = {"--dry-run": "client"}

SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "A cluster": {
        "up": CommandEntry("cluster.up", "Start a cluster in the foreground."),
        "envtest": CommandEntry(
            "cluster.envtest", "Print a folder of programs for test suites that start kube-apiserver and etcd."
        ),
        "controllers": CommandEntry("cluster.controllers", "Run the built-in controllers as a process of their own."),
        "node": CommandEntry("cluster.node", "Run pods on this machine, without root and without a container engine."),
        "image": CommandEntry("cluster.image", "Load, pull, list and remove the images of this machine's node."),
        "proxy": CommandEntry("kubectl.proxy", "Open local ports that lead to the ready pods of a Service."),
        "token": CommandEntry("cluster.token", "Create, list and delete the tokens with which machines join."),
        "scheduler": CommandEntry("cluster.scheduler", "Run the scheduler as a process of its own."),
        "explain-schedule": CommandEntry(
            "explain.explain_schedule", "Explain why a pod goes to a node or to none, and what would help."
        ),
        "simulate": CommandEntry(
            "explain.simulate", "Print where the pods in files would run, without writing.", function="simulate_pods"
        ),
        "check": CommandEntry("check.check", "Validate manifests as a server does, without one; for any minor."),
        "autoscale": CommandEntry("explain.autoscale", "Show how an autoscaler would have followed a recorded load."),
        "snapshot": CommandEntry("cluster.snapshot", "Save a cluster to a file, or make one from it."),
        "version": CommandEntry("cluster.version", "Print the version of pinnace and what it can serve."),
        "migrate-storage": CommandEntry(
            "cluster.migrate_storage", "Rewrite a custom kind's objects in its stored version.", function="migrate"
        ),
        "why-denied": CommandEntry(
            "explain.why_denied", "Explain why a user may not do something, and what would allow it."
        ),
        "why-stuck": CommandEntry("explain.why_stuck", "Explain why an object that was deleted is still there."),
    },
    "Extensions": {
        "init": CommandEntry("extensions.init", "Create an extension project that passes its own tests."),
        "run": CommandEntry("extensions.run", "Run the operator in a file; restart it when the file is saved."),
        "manifests": CommandEntry(
            "extensions.manifests", "Print the manifests that run an operator in a real cluster."
        ),
        "plugin": CommandEntry("extensions.plugin", "Install a Python file as kubectl NAME, or package it for krew."),
        "models": CommandEntry("extensions.models", "Print typed classes for the custom kinds of a CRD."),
        "record": CommandEntry("extensions.record", "Record objects and their changes of any cluster, for tests."),
        "timeline": CommandEntry("extensions.timeline", "Print the changes of a recording, as text or HTML."),
        "perturb": CommandEntry("extensions.perturb", "Look for bugs of an operator that only timing shows."),
        "why": CommandEntry("explain.why", "Explain why an operator reconciled an object, with the result."),
    },
    "The commands of kubectl, without kubectl": {
        "get": CommandEntry("kubectl.get", "Show objects, as a table or in full."),
        "describe": CommandEntry("describe.describe", "Show the details of an object, with its events."),
        "apply": CommandEntry("kubectl.apply", "Apply the objects in files.", bare=_DRY),
        "delete": CommandEntry(
            "kubectl.delete", "Delete objects, and wait until they are gone.", bare=_DRY | {"--cascade": "background"}
        ),
        "watch": CommandEntry("kubectl.get", "Show objects, then each change as it happens.", function="watch"),
        "logs": CommandEntry("kubectl.logs", "Print the logs of containers."),
        "exec": CommandEntry("kubectl.exec", "Run a command in a container.", function="exec_"),
        "top": CommandEntry("kubectl.top", "Show the CPU and memory in use, of nodes or pods."),
        "port-forward": CommandEntry("kubectl.port_forward", "Forward local ports to a pod."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


def load_command(entry: CommandEntry) -> Callable[..., None]:
    """Import the module of a command, without collections of garbage: they would visit all that was imported before."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        module = import_module(f"pinnace.cli.{entry.module}")
    finally:
        if is_collecting:
            gc.freeze()
            gc.enable()
    command: Callable[..., None] = getattr(module, entry.function or entry.module.partition(".")[2])
    return command


class Commands(TyperGroup):
    """A group with the commands of the table above."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(cmd_name, cls=KubectlCommand)(load_command(entry))
        command: Any = typer.main.get_command(alone)
        command.bare = entry.bare
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _globals_last(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib  # noqa: PLC0415 - only needed after a typing error

            near = difflib.get_close_matches(args[0], COMMANDS, n=3, cutoff=0.5)
            typer.echo(f'error: unknown command "{args[0]}" for "pinnace"', err=True)
            if near:
                typer.echo("\nDid you mean this?\n" + "".join(f"\t{name}\n" for name in near), err=True)
            typer.echo("pinnace --help lists all commands.", err=True)
            ctx.exit(1)
        resolved: tuple[Any, Any, list[str]] = super().resolve_command(ctx, args)
        return resolved

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in commands.items()])


def _globals_last(args: list[str]) -> list[str]:
    """Turn `pinnace -n web get pods` into `pinnace get -n web pods`: kubectl accepts these flags on either side."""
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


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from pinnace.cli.cluster.version import version  # noqa: PLC0415 - only needed for this flag

        version()
        raise typer.Exit


@app.callback()
def _pinnace(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A Kubernetes control plane that installs with pip, and the tools to extend it.

    \b
    Five minutes:
      pinnace up --merge                  a cluster, ready in a second; kubectl talks to it
      pinnace get namespaces              or this, where there is no kubectl
      pinnace init website-controller     an operator that passes its own tests
      pinnace run website_controller.py --dev

    pinnace COMMAND --help explains each command, with examples.
    """
