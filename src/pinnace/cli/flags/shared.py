"""Flags in kubectl's syntax, and those that many commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))

Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="The kubeconfig file to use.", show_default="kubectl's")
]
ClusterKubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="The kubeconfig of the cluster.", show_default="kubectl's")
]
SecurePort = Annotated[
    int,
    typer.Option(
        help="Serve metrics, health, /configz, /flagz, /statusz and /debug/pprof/ over HTTPS on this port, to callers "
        "that the cluster authorizes; 0 is off.",
        min=0,
        max=65535,
    ),
]
"""The port of the server of a component."""
Context = Annotated[str, typer.Option("--context", help="The context to use.", show_default="the current one")]
Namespace = Annotated[
    str, typer.Option("-n", "--namespace", help="The namespace to use.", show_default="the context's namespace")
]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Use all namespaces.")]
Labels = Annotated[
    str,
    typer.Option("-l", "--selector", help="Only objects with these labels: app=web,tier!=cache.", show_default=False),
]
Fields = Annotated[
    str,
    typer.Option("--field-selector", help="Only objects with these fields: status.phase=Running.", show_default=False),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "-f",
        "--filename",
        metavar="<path>",
        help="A file, a directory, or - for standard input; may be repeated.",
    ),
]
Recursive = Annotated[bool, typer.Option("-R", "--recursive", help="Also read the subdirectories of -f directories.")]

Container = Annotated[
    str, typer.Option("-c", "--container", help="The container; needed if there are several.", show_default=False)
]
OperatorFile = Annotated[
    str, typer.Argument(help="The file of the operator or scheduler; file.py:name if it has several.")
]
OperatorModule = Annotated[
    str, typer.Option("-m", "--module", help="A module instead of a file: package.module, or package.module:name.")
]


class KubectlCommand(TyperCommand):
    """Also accepts `--wait=false`, `-o=yaml`, and `--dry-run` without a value."""

    bare: Mapping[str, str] = {}

    def get_help(self, ctx: Any) -> str:
        """Leave out the type of repeated arguments: their name already shows it, with dots."""
        return super().get_help(ctx).replace(" <list[str]>", "")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["pinnace.command_after_dashes"] = args[args.index("--") + 1 :] if "--" in args else None
        return super().parse_args(ctx, list(self._rewrite(ctx, args)))

    def _rewrite(self, ctx: Any, args: list[str]) -> Any:
        switches = {name: option for option in self.params for name in option.opts if getattr(option, "is_flag", False)}
        for place, arg in enumerate(args):
            if arg == "--":
                yield from args[place:]
                return
            name, equals, value = arg.partition("=")
            if arg in self.bare:
                yield f"{arg}={self.bare[arg]}"
            elif equals and name in switches:
                yield from _rewrite_switch(ctx, switches[name], name, value)
            elif equals and len(name) == 2 and name.startswith("-") and name != "--":
                yield from (name, value)
            else:
                yield arg


def _rewrite_switch(ctx: Any, option: Any, name: str, value: str) -> list[str]:
    if value in _TRUE:
        return [name]
    if value in _FALSE:
        return list(option.secondary_opts[:1])  # A switch without a negative form is off by default.
    typer.echo(f'error: invalid argument "{value}" for "{name}" flag: it is true or false', err=True)
    ctx.exit(1)
    return []
