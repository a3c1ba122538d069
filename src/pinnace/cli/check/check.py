"""`pinnace check`: validate manifests without a cluster."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from pinnace.cli.check.manifests import BadFile, Finding, SourceObject, find_files, read_manifests
from pinnace.cli.check.offline_server import is_of_program, offline_server
from pinnace.cli.check.reports import FORMATS, CheckReport
from pinnace.cli.failure import fail
from pinnace.cli.flags.versions import FeatureGatesFlag, parse_feature_gates, parse_minor
from pinnace.kinds.definitions import minors
from pinnace.model.objects import kind_of

_USAGE = 2


def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILES...", help="Files and directories, at any depth; - is standard input.")
    ],
    crds: Annotated[
        list[str] | None,
        typer.Option(
            "--crds",
            metavar="FILE",
            help="CRDs and policies to check by, which are not checked themselves; may be repeated.",
            show_default=False,
        ),
    ] = None,
    kubernetes_version: Annotated[
        str, typer.Option(help="The Kubernetes minor version to check for, such as 1.31.", show_default="newest")
    ] = "",
    feature_gates: FeatureGatesFlag = "",
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="The namespace of objects that name none.")
    ] = "default",
    output: Annotated[str, typer.Option("-o", "--output", help="text, json, junit or github.")] = "text",
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings as well.")] = False,
) -> None:
    """Validate manifests as a Kubernetes server does, without one: no cluster, no network.

    A server in memory judges each object: types, unknown fields, defaults, rules across fields, CEL, deprecated
    versions, Pod Security, and the CRDs and admission policies in the same files. Each finding names its line.
    Whether a ServiceAccount, PriorityClass or RuntimeClass exists, and quotas, are left to the cluster.

    The exit code is 1 if there are errors, and 2 if a file cannot be read.

    \b
    Examples:
      pinnace check deploy/
      pinnace check deploy/ --kubernetes-version 1.31
      pinnace check website.yaml --crds crds/              custom resources, by CRDs that are elsewhere
      kustomize build overlays/test | pinnace check -
      pinnace check deploy/ -o github                      annotations in a workflow
    """
    if output not in FORMATS:
        fail(f"--output {output}: choose from {', '.join(FORMATS)}", code=_USAGE)
    version = parse_minor(kubernetes_version) or minors()[-1]
    gates = parse_feature_gates(feature_gates, version)
    try:
        paths = find_files(files)
        known = set(paths)
        given = [file for file in find_files(crds or ()) if file not in known]
        read = [read_manifests(file) for file in paths]
        definitions = [manifest for file in given for manifest in _definitions(file)]
    except BadFile as error:
        fail(error, code=_USAGE)
    manifests = [manifest for objects, _ in read for manifest in objects]
    findings = [finding for _, bad in read for finding in bad]
    skipped = [manifest for manifest in manifests if is_of_program(kind_of(manifest.object))]
    checked = [manifest for manifest in manifests if not is_of_program(kind_of(manifest.object))]
    if not manifests and not findings:
        fail(f"{', '.join(files)}: expected Kubernetes objects, found none", code=_USAGE)
    order = {path: place for place, path in enumerate(paths)}
    findings += asyncio.run(_judge(checked, definitions, version=version, gates=gates, namespace=namespace))
    findings.sort(key=lambda finding: (order.get(finding.source, len(order)), finding.position))
    result = CheckReport(len(paths), checked, skipped, findings)
    sys.stdout.write(FORMATS[output](result))
    raise typer.Exit(1 if result.errors or (strict and findings) else 0)


def _definitions(file: str) -> list[SourceObject]:
    """Return the objects that others are checked by. Raise BadFile."""
    manifests, findings = read_manifests(file)
    if findings:
        raise BadFile(f"{file}: line {findings[0].position.line}: {findings[0].message}")
    return manifests


async def _judge(
    checked: list[SourceObject], definitions: list[SourceObject], *, version: str, gates: str, namespace: str
) -> list[Finding]:
    """Return the findings of the objects, and those of definitions that cannot be used."""
    findings: list[Finding] = []
    own = {id(manifest) for manifest in definitions}
    async with offline_server(version=version, namespace=namespace, gates=gates) as server:
        async for manifest, new in server.judge([*definitions, *checked]):
            findings += [finding for finding in new if finding.is_error or id(manifest) not in own]
    return findings
