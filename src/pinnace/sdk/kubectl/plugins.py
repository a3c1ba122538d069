'''kubectl plug-ins: a function becomes `kubectl <name>`, with kubectl's own flags and completion.

    plugin = Plugin("websites", version="0.1.0", description="Shows websites and whether they are up.")

    @plugin.command()
    async def websites(client: Client, name: Annotated[str, typer.Argument(help="Which one.")] = "") -> None:
        """Show websites and whether they are up."""
        for site in await client.list("extensions.example.com/v1/Website", namespace=client.namespace):
            print(site["metadata"]["name"])

    if __name__ == "__main__":
        plugin()

Installed by pip with two lines under [project.scripts] in pyproject.toml, or as a file by `pinnace plugin install`:

    kubectl-websites = "websites:plugin"
    kubectl_complete-websites = "websites:plugin.complete"
'''

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

import typer
import typer.completion

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.credentials import NoCredentials
from pinnace.client.kubeconfig import KubeconfigError, find_access_with
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.sdk.kubectl.plugin_flags import flag_parameters, overrides_of

Function = TypeVar("Function", bound=Callable[..., Any])

_WORD = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*")
_NO_FILES = 4
"""Makes kubectl offer no file names as completions."""


@dataclass(slots=True)
class _Given:
    """A call from a test, with the test's client."""

    client: Client
    work: Awaitable[None] | None = None


_given: ContextVar[_Given | None] = ContextVar("given", default=None)


class Plugin:
    """The plug-in `kubectl <name>`. A single command is the plug-in itself; several are its subcommands."""

    def __init__(
        self, name: str, *, version: str = "0.1.0", description: str = "", homepage: str = "", caveats: str = ""
    ) -> None:
        """`name` is the words after kubectl; "site logs" makes `kubectl site logs`. The rest is for krew."""
        words = name.split()
        if not words or not all(_WORD.fullmatch(word) for word in words):
            raise ValueError(f"{name!r} cannot be a plug-in's name; write small letters, digits and - between them")
        self.name = " ".join(words)
        self.version = version
        self.description = description
        self.homepage = homepage
        self.caveats = caveats
        self.app = typer.Typer(
            help=description or None,
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    @property
    def executable(self) -> str:
        """The name of the executable that kubectl looks for on the PATH; a - within a word becomes a _."""
        return f"kubectl-{self._file}"

    @property
    def completer(self) -> str:
        """The name of the executable that kubectl calls for completion."""
        return f"kubectl_complete-{self._file}"

    @property
    def _file(self) -> str:
        return "-".join(word.replace("-", "_") for word in self.name.split())

    def command(self, name: str | None = None) -> Callable[[Function], Function]:
        """`async def websites(client: Client, ...) -> None`: its parameters are typer's, its docstring is the help.

        A parameter of type `Client` receives one for the cluster, user and namespace of kubectl's flags.
        """

        def declare(function: Function) -> Function:
            self.app.command(name)(self._with_flags(function))
            return function

        return declare

    def _with_flags(self, function: Callable[..., Any]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        own = inspect.signature(function).parameters.values()
        clients = [parameter.name for parameter in own if hints.get(parameter.name) is Client]
        flags = flag_parameters() if clients else []
        taken = {flag.name for flag in flags} & {parameter.name for parameter in own}
        if taken:
            raise ValueError(
                f"{function.__name__} has a parameter {min(taken)}, which is a flag of kubectl's: rename it"
            )

        def entered(**values: Any) -> None:
            chosen = {parameter.name: values[parameter.name] for parameter in own if parameter.name not in clients}
            given = _given.get()
            if given is not None:
                given.work = _call(function, chosen | dict.fromkeys(clients, given.client))
                return
            try:
                asyncio.run(self._work(function, chosen, clients, values))
            except (errors.ApiError, ConnectionLost, KubeconfigError, NoCredentials) as error:
                print(_format_error(error), file=sys.stderr)
                raise typer.Exit(1) from None

        kept = [
            parameter.replace(annotation=hints.get(parameter.name, str))
            for parameter in own
            if parameter.name not in clients
        ]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in kept]
        entered.__name__, entered.__doc__ = function.__name__, function.__doc__
        entered.__signature__ = inspect.Signature([*parameters, *flags])  # type: ignore[attr-defined]
        entered.__annotations__ = {parameter.name: parameter.annotation for parameter in (*parameters, *flags)}
        return entered

    async def _work(
        self, function: Callable[..., Any], chosen: dict[str, Any], clients: list[str], values: dict[str, Any]
    ) -> None:
        if not clients:
            await _call(function, chosen)
            return
        access = find_access_with(overrides_of(values))
        async with connect(access, field_manager=self.executable) as client:
            await _call(function, chosen | dict.fromkeys(clients, client))

    # Running

    def __call__(self) -> None:
        """Run as a process: the last line of a script, or the entry point of a package."""
        with contextlib.suppress(KeyboardInterrupt):
            self.app(prog_name=f"kubectl {self.name}")

    async def run(self, *arguments: str, client: Client) -> None:
        """Run within a test, with the test's own client. Raise SystemExit where the process would end early."""
        given = _Given(client)
        token = _given.set(given)
        try:
            self.app(list(arguments), prog_name=f"kubectl {self.name}")
        except SystemExit:
            if given.work is None:
                raise
        finally:
            _given.reset(token)
        assert given.work is not None
        await given.work

    def complete(self) -> None:
        """Print the completions of the command line for kubectl."""
        for line in self.completions(sys.argv[1:]):
            print(line)
        print(f":{_NO_FILES}")

    def completions(self, words: list[str]) -> list[str]:
        """Return the completions of the last word, each in kubectl's format: the word, a tab, and its description."""
        # Typer's format for the fish shell is the format that kubectl expects.
        *whole, last = words or [""]
        line = shlex.join([self.executable, *whole]) + " " + (shlex.quote(last) if last else "")
        os.environ |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        typer.completion.get_completion_inspect_parameters()  # Registers the shells with typer.
        command, output = typer.main.get_command(self.app), io.StringIO()
        with contextlib.redirect_stdout(output):
            typer.completion.shell_complete(command, {}, self.executable, "_PLUGIN_COMPLETE", "complete_fish")
        return [line for line in output.getvalue().splitlines() if line]


async def _call(function: Callable[..., Any], values: dict[str, Any]) -> None:
    result = function(**values)
    if inspect.isawaitable(result):
        await result


def _format_error(error: Exception) -> str:
    if isinstance(error, errors.ApiError):
        return f"Error from server ({error.reason}): {error.message}"
    if isinstance(error, ConnectionLost):
        return f"error: the server cannot be reached: {error}"
    return f"error: {error}"
