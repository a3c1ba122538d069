"""`pinnace perturb`: look for bugs of an operator that only timing shows."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.extensions.perturb_jobs import SearchOptions, search_scenario
from pinnace.cli.failure import fail
from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.session import CommandError
from pinnace.model import errors
from pinnace.sdk.command.operator_files import NoOperator, import_file
from pinnace.testing.cluster import Cluster
from pinnace.testing.perturb.scenario import Scenario, ScenarioFailed
from pinnace.testing.perturb.schedule import KINDS, Disturbance, DisturbanceKind
from pinnace.testing.perturb.search import replay


def perturb(
    files: Annotated[
        list[str],
        typer.Argument(
            help="A Python file with one or more Scenarios, file.py:NAME for one of them; with --command the steps of "
            "users: manifests to apply, delete:MANIFEST, or executables.",
            metavar="FILE...",
        ),
    ],
    command: Annotated[
        str,
        typer.Option(
            help="The command that starts the operator, which finds the cluster by KUBECONFIG.", show_default=False
        ),
    ] = "",
    setup: Annotated[
        list[str] | None,
        typer.Option(
            help="With --command: a step before the operator starts, such as its CRDs; may be repeated.",
            show_default=False,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            help='With --command: what may differ, such as "configmaps *: data.time"; may be repeated.',
            show_default=False,
        ),
    ] = None,
    random: Annotated[
        list[str] | None,
        typer.Option(
            help='With --command: values made at random, such as "secrets *"; may be repeated.', show_default=False
        ),
    ] = None,
    quiet: Annotated[
        float,
        typer.Option(
            help="With --command: the seconds without a change after which the operator has finished.", min=0.05
        ),
    ] = 1.5,
    deadline: Annotated[
        float,
        typer.Option(help="With --command: the seconds in which a disturbed operator must reach the end state.", min=0),
    ] = 15.0,
    only: Annotated[str, typer.Option(help="Only the scenario with this name.", show_default=False)] = "",
    kinds: Annotated[
        str, typer.Option(help=f"The disturbances to try, separated by commas: {', '.join(KINDS)}.", show_default="all")
    ] = "",
    limit: Annotated[int, typer.Option(help="The most disturbances for each scenario.", min=1)] = 500,
    jobs: Annotated[
        int, typer.Option("-j", "--jobs", help="The number of processes; 0 is one for each processor.", min=0)
    ] = 1,
    show: Annotated[
        str, typer.Option("--replay", help="Only one disturbance, such as crash:2.", show_default=False)
    ] = "",
) -> None:
    """Run scenarios undisturbed, then with one disturbance at each point, and compare the end states.

    \b
      pinnace perturb scenarios.py                        every disturbance at every point
      pinnace perturb scenarios.py:OPENING --jobs 4       one scenario, by four processes
      pinnace perturb scenarios.py --replay crash:2       one disturbance, again
      pinnace perturb --command ./manager --setup crds.yaml site.yaml grow.yaml
                                                          a program in any language

    The operator crashes between two writes, sees an older state after a restart, misses a state, loses an answer, or
    overlaps with a second replica. A difference in the end is printed with its writes and a test that shows it. The
    exit code is 1 if there is one, and 2 if a scenario fails by itself.
    """
    logging.disable(logging.ERROR)  # Operators log each disturbance, as they should.
    source = ScenarioFiles(
        files=tuple(files),
        only=only,
        command=command,
        setup=tuple(setup or ()),
        ignore=tuple(ignore or ()),
        random=tuple(random or ()),
        quiet=quiet,
        deadline=deadline,
    )
    try:
        scenarios = source.load()
    except (CommandError, NoOperator, ValueError) as error:
        fail(error, code=2)
    options = SearchOptions(_kinds_of(kinds), limit, jobs or os.cpu_count() or 1)
    code = 0
    for number, scenario in enumerate(scenarios):
        try:
            code = max(code, _replay(scenario, show) if show else _search(source, number, options))
        except ScenarioFailed as error:
            print(f"pinnace: {error}", file=sys.stderr)
            code = 2
    raise typer.Exit(code)


def _search(source: ScenarioFiles, number: int, options: SearchOptions) -> int:
    result = search_scenario(source, number, options)
    print(result)
    return int(bool(result.findings or result.unstable))


def _replay(scenario: Scenario, disturbance: str) -> int:
    try:
        meaning = Disturbance.parse(disturbance).meaning
    except ValueError as error:
        fail(error, code=2)
    differences = asyncio.run(replay(scenario, disturbance))
    print("\n".join([f"{scenario.name}: {meaning}", *(differences or ["no difference"])]))
    return int(bool(differences))


def _kinds_of(text: str) -> list[DisturbanceKind]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in names if part not in KINDS]
    if unknown:
        fail(f"{unknown[0]!r} is no disturbance; expected {', '.join(KINDS)}", code=2)
    return [kind for kind in KINDS if not names or kind in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFiles:
    """The scenarios that the arguments of the command name."""

    files: tuple[str, ...]
    only: str = ""
    command: str = ""
    setup: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    random: tuple[str, ...] = ()
    quiet: float = 1.5
    deadline: float = 15.0

    def load(self) -> Sequence[Scenario]:
        """Return the scenarios. Raise CommandError, NoOperator or ValueError."""
        return [self._of_command()] if self.command else _scenarios_in(self.files, self.only)

    def _of_command(self) -> Scenario:
        return scenario_of(
            shlex.split(self.command),
            self.files,
            setup=self.setup,
            ignore=self.ignore,
            random=self.random,
            quiet=self.quiet,
            deadline=self.deadline,
        )


def _scenarios_in(files: Sequence[str], only: str) -> list[Scenario]:
    if len(files) > 1:
        raise CommandError(
            f"expected one Python file with Scenarios, found {len(files)}; steps need --command, the operator's start"
        )
    head, colon, name = files[0].rpartition(":")
    file, name = (Path(head), name) if colon and name.isidentifier() else (Path(files[0]), "")
    if not file.is_file():
        raise CommandError(f"there is no file {file}; expected a Python file with Scenarios")
    values = vars(import_file(file))
    scenarios = {key: value for key, value in values.items() if isinstance(value, Scenario)}
    if name and name not in scenarios:
        raise CommandError(f"{file} has no scenario {name}; it has {', '.join(scenarios) or 'none'}")
    chosen = [
        scenario
        for key, scenario in scenarios.items()
        if (not name or key == name) and (not only or scenario.name == only)
    ]
    if not chosen:
        names = ", ".join(scenario.name for scenario in scenarios.values()) or "none"
        named = f" named {only}" if only else ""
        raise CommandError(f"{file} has no scenario{named}; it has {names}. Write NAME = Scenario(...)")
    return chosen


_DELETE = "delete:"
_MANIFESTS = (".json", ".yaml", ".yml")


class StepFailed(Exception):
    """An executable step ended with an error."""


def scenario_of(
    command: Sequence[str],
    steps: Sequence[str],
    *,
    setup: Sequence[str],
    ignore: Sequence[str],
    random: Sequence[str] = (),
    quiet: float,
    deadline: float,
) -> Scenario:
    """Return the scenario in which a program runs while users take these steps. Raise CommandError.

    A step is a manifest, which is applied; delete:MANIFEST, whose objects are deleted; or an executable, which runs
    with the administrator's KUBECONFIG.
    """
    for step in (*setup, *steps):
        _check(step)

    async def prepare(cluster: Cluster) -> None:
        for step in setup:
            await _take(cluster, step)
            await cluster.settle()

    async def act(cluster: Cluster) -> None:
        for step in steps:
            await _take(cluster, step)
            await cluster.settle()

    return Scenario(
        command=tuple(command),
        act=act,
        setup=prepare,
        name=" ".join(command),
        ignore=tuple(ignore),
        random=tuple(random),
        quiet=quiet,
        deadline=deadline,
    )


def _check(step: str) -> None:
    path = Path(step.removeprefix(_DELETE))
    if path.suffix in _MANIFESTS or step.startswith(_DELETE):
        read_documents([str(path)])
    elif not path.is_file():
        raise CommandError(f"the step {step} does not exist; expected a manifest, delete:MANIFEST or an executable")
    elif not os.access(path, os.X_OK):
        raise CommandError(f"the step {step} is not executable; make it so with chmod +x, or name a manifest .yaml")


async def _take(cluster: Cluster, step: str) -> None:
    path = step.removeprefix(_DELETE)
    if step.startswith(_DELETE):
        for document in reversed(read_documents([path])):
            obj = document.object
            metadata = obj["metadata"]
            with suppress(errors.NotFound):
                kind = f"{obj['apiVersion']}/{obj['kind']}"
                await cluster.client.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""))
    elif Path(path).suffix in _MANIFESTS:
        for document in read_documents([path]):
            await cluster.client.apply(document.object, force=True)
    else:
        await _execute(cluster, path)


async def _execute(cluster: Cluster, path: str) -> None:
    with tempfile.TemporaryDirectory(prefix="pinnace-step-") as directory:
        kubeconfig = await cluster.listen(Path(directory))
        process = await asyncio.create_subprocess_exec(
            str(Path(path).resolve()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )
        output, _ = await process.communicate()
    if process.returncode:
        raise StepFailed(f"the step {path} ended with {process.returncode}: {output.decode(errors='replace').strip()}")
