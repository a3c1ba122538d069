"""`pinnace manifests`: print the manifests that run an operator or scheduler in a real cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pinnace import __version__
from pinnace.cli.kubectl.formats import as_documents
from pinnace.cli.operator_files import NoOperator, file_of
from pinnace.cli.reloading import load
from pinnace.model.objects import Object
from pinnace.sdk.extension import Extension
from pinnace.sdk.operator.manifests import DeploymentOptions, definitions, dockerfile, roles, workload
from pinnace.sdk.operator.operator import Operator
from pinnace.sdk.resources.schemas import NotStructural


def manifests(
    file: Annotated[str, typer.Argument(help="The file of the operator or scheduler; file.py:name if it has several.")],
    out: Annotated[
        Path | None, typer.Option(help="Write files into this directory, with a Dockerfile.", show_default=False)
    ] = None,
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="The operator's namespace.")] = "default",
    image: Annotated[str, typer.Option(help="The operator's image.", show_default="NAME:latest")] = "",
    replicas: Annotated[int, typer.Option(help="The number of replicas; one works, the others stand by.", min=1)] = 1,
) -> None:
    """Print the CRDs, the least permissions, the Deployment, the webhook configurations and APIs of an operator.

    Of a scheduler the permissions and the Deployment.
    """
    try:
        loaded = load(file)
        operator = loaded.operator
        source = file_of(file)
        place = DeploymentOptions(
            namespace=namespace, image=image or f"{operator.name}:latest", file=source.name, replicas=replicas
        )
        written = _manifests_of(operator, place)
    except (NoOperator, NotStructural, ValueError) as error:
        print(f"pinnace: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if out is None:
        print(as_documents([obj for objects in written.values() for obj in objects]), end="")
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, objects in written.items():
        if objects:
            (out / name).write_text(as_documents(objects))
    (out / "Dockerfile").write_text(dockerfile(source, version=__version__, beside=loaded.files))
    print(f"written to {out}: build the image with its Dockerfile beside {source.name}, then kubectl apply -f {out}")


def _manifests_of(operator: Extension, place: DeploymentOptions) -> dict[str, list[Object]]:
    if isinstance(operator, Operator):
        return {
            "crds.yaml": definitions(operator.declarations, place),
            "rbac.yaml": roles(operator.declarations, place),
            "deployment.yaml": workload(operator.declarations, place),
        }
    from pinnace.sdk.scheduling.manifests import scheduler_roles, scheduler_workload  # noqa: PLC0415 - it loads numpy

    return {
        "rbac.yaml": scheduler_roles(operator.name, place),
        "deployment.yaml": scheduler_workload(operator.name, place),
    }
