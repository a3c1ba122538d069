"""`pinnace explain-schedule`: for every node the filter that refused a pod, or its scores, and what would help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from pinnace.cli.explain.scheduler_profiles import find_profiles, profile_for
from pinnace.cli.flags.shared import Context, Kubeconfig, Namespace
from pinnace.cli.session import CommandError, converse
from pinnace.client.client import Client
from pinnace.model.typed_objects import Pod
from pinnace.scheduler.framework.status import PluginError
from pinnace.scheduler.what_if.copies import copy_cluster
from pinnace.scheduler.what_if.explanation import NodeReport, SchedulingReport, explain

NO_NODE = 1


def explain_schedule(
    pod: Annotated[str, typer.Argument(help="The pod, as NAME or pod/NAME.")],
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            "--scheduler",
            metavar="FILE",
            help="A file with the pod's custom scheduler; may be repeated.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A KubeSchedulerConfiguration with the pod's profile.", show_default=False)
    ] = None,
    output: Annotated[str, typer.Option("-o", "--output", help="json for all details.", show_default=False)] = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Explain where the scheduler puts a pod: the filter that refused each node, or the scores of those that fit.

    If no node fits, print the smallest change that would help. The decision is made here, on a copy of the cluster;
    nothing is written. The exit code is 1 if no node fits.

    \b
    Examples:
      pinnace explain-schedule pod/web
      pinnace explain-schedule web -n shop --scheduler my_scheduler.py
      pinnace explain-schedule web -o json
    """
    if output not in ("", "json"):
        raise typer.BadParameter(f"-o {output}: expected json")
    name = pod.removeprefix("pods/").removeprefix("pod/")

    async def talk(client: Client) -> int:
        profiles = find_profiles(config, scheduler or ())
        obj = await client.get("v1/Pod", name)
        profile = profile_for(obj, profiles)
        state = await copy_cluster(client)
        state.remove_pod(obj["metadata"]["uid"])
        try:
            report = explain(cast("Pod", obj), state, profile)
        except PluginError as error:
            raise CommandError(str(error)) from error
        if output == "json":
            print(json.dumps(asdict(report), indent=2))
        else:
            for line in format_report(report, runs_on=obj["spec"].get("nodeName") or ""):
                print(line)
        return 0 if report.node else NO_NODE

    converse(talk, kubeconfig=kubeconfig, context=context, namespace=namespace)


def format_report(report: SchedulingReport, *, runs_on: str = "") -> Iterator[str]:
    """Yield the lines of an explanation."""
    if runs_on:
        yield f"{report.pod} runs on {runs_on}. If it were scheduled now:"
    if report.node:
        yield f"{report.pod} goes to {report.node}."
    else:
        yield f"{report.pod} fits on no node."
        yield report.message
    fits = [candidate for candidate in report.nodes if not candidate.plugin]
    refused = [candidate for candidate in report.nodes if candidate.plugin]
    if fits:
        yield ""
        yield from _format_scores(fits, report)
    if refused:
        yield ""
        yield from _format_refused(refused)
    if report.victims:
        yield ""
        yield f"Preemption would evict {', '.join(report.victims)} from {report.nominated}."
    if report.smallest is not None:
        node, remedy = report.smallest
        yield ""
        yield f"Smallest change: {remedy}; then it fits on {node}."


def _format_scores(fits: list[NodeReport], report: SchedulingReport) -> Iterator[str]:
    """Yield a table of weighted scores by plug-in. Plug-ins that give no node a score are left out."""
    plugins = [name for name in report.weights if any(candidate.scores.get(name) for candidate in fits)]
    head = ["NODE", "TOTAL", *plugins]
    rows = [
        [
            candidate.name,
            str(candidate.total),
            *(str(report.weights[name] * candidate.scores.get(name, 0)) for name in plugins),
        ]
        for candidate in fits
    ]
    yield from _table([head, *rows])


def _format_refused(refused: list[NodeReport]) -> Iterator[str]:
    head = ["NODE", "REFUSED BY", "REASON", "WOULD FIT WITH"]
    rows = [
        [candidate.name, candidate.plugin, ", ".join(candidate.reasons), str(candidate.remedy or "")]
        for candidate in refused
    ]
    has_remedies = any(row[3] for row in rows)
    yield from _table([row if has_remedies else row[:3] for row in [head, *rows]])


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
