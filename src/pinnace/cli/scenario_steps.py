"""Scenarios on the command line: what users do, as manifests and executables."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.session import CommandError
from pinnace.model import errors
from pinnace.testing.cluster import Cluster
from pinnace.testing.perturb.scenario import Scenario

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
