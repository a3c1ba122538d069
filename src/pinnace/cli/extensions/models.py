"""`pinnace models`: generate typed classes from CRDs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.codegen.kind_classes import module_of
from pinnace.cli.flags.shared import Context, Kubeconfig, Recursive
from pinnace.cli.kubectl.documents import read_documents
from pinnace.cli.session import CommandError, converse, failing_with
from pinnace.client.client import Client
from pinnace.kinds.apiextensions.resources import definition_to_v1
from pinnace.model.objects import Object

_DEFINITION = "CustomResourceDefinition"


def models(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE | DIRECTORY | - | NAME...", help="CRDs in files, or by name in a cluster."),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the module to this file.", show_default=False)
    ] = None,
    recursive: Recursive = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Print a module with a class for each version of each kind of some CRDs.

    The classes are those of pinnace.sdk: use them in handlers, in tests, and with the client. Enums are Literals,
    nested objects are classes, descriptions are docstrings. The CRD of a class (`Website.crd()`) is equivalent to the
    one that it was generated from.

    \b
    Examples:
      pinnace models crd.yaml                           print the classes
      pinnace models crds/ -R -o kinds.py               of all CRDs in a directory, into a file
      pinnace models certificates.cert-manager.io       of a CRD in the current cluster
    """
    files = [source for source in sources if source == "-" or Path(source).exists() or _looks_like_file(source)]
    names = [source for source in sources if source not in files]
    try:
        definitions = _in_files(files, recursive=recursive) if files else []
    except CommandError as error:
        failing_with(1, f"error: {error}")
    if names:

        async def talk(client: Client) -> None:
            for name in names:
                definition = await client.get(f"apiextensions.k8s.io/v1/{_DEFINITION}", name)
                definitions.append(definition)
            _write(definitions, sources, out)

        converse(talk, kubeconfig=kubeconfig, context=context)
    try:
        _write(definitions, sources, out)
    except CommandError as error:
        failing_with(1, f"error: {error}")


def _looks_like_file(source: str) -> bool:
    return "/" in source or source.endswith((".yaml", ".yml", ".json"))


def _in_files(files: list[str], *, recursive: bool) -> list[Object]:
    definitions = [
        document.object
        for document in read_documents(files, recursive=recursive)
        if document.object["kind"] == _DEFINITION
    ]
    if not definitions:
        raise CommandError(f"there is no {_DEFINITION} in {', '.join(files)}")
    # Many examples say v1 but have v1beta1's layout: one version for all, at the top.
    return [
        definition if (definition.get("spec") or {}).get("versions") else definition_to_v1(definition)
        for definition in definitions
    ]


def _write(definitions: list[Object], sources: list[str], out: Path | None) -> None:
    named = ", ".join(definition["metadata"]["name"] for definition in definitions)
    module = module_of(definitions, source=named)
    if out is None:
        sys.stdout.write(module)
        return
    out.write_text(module, encoding="utf-8")
    print(f"{out}: the classes of {named}")
