"""`pinnace manifests`: print the manifests that run an operator or scheduler in a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinnace import __version__
from pinnace.cli.extensions.reloading import load
from pinnace.cli.failure import fail
from pinnace.cli.flags.shared import OperatorFile, OperatorModule
from pinnace.cli.kubectl.formats import as_documents
from pinnace.model.objects import Object
from pinnace.sdk.command.operator_files import NoOperator, file_of, is_module, target_of
from pinnace.sdk.extension import NodePlugin, Runnable
from pinnace.sdk.installation.manifests import (
    MONITOR,
    OPERATOR_PROGRAM,
    SCHEDULER_PROGRAM,
    DeploymentOptions,
    definitions,
    dockerfile,
    monitoring,
    project_dockerfile,
    roles,
    workload,
)
from pinnace.sdk.installation.olm import bundle, bundle_dockerfile
from pinnace.sdk.installation.packaging import (
    chart,
    chart_crds,
    chart_templates,
    chart_values,
    finish_template,
    kustomization,
)
from pinnace.sdk.installation.project import find_project, has_build, read_settings
from pinnace.sdk.operator.operator import Operator
from pinnace.sdk.resources.schemas import NotStructural

MONITORING = "monitoring"
BUNDLE_DOCKERFILE = "bundle.Dockerfile"
_FORMATS = ("yaml", "kustomize", "helm", "olm")


def manifests(
    file: OperatorFile = "",
    module: OperatorModule = "",
    out: Annotated[
        Path | None, typer.Option(help="Write files into this directory, with a Dockerfile.", show_default=False)
    ] = None,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="The operator's namespace.", show_default="default")
    ] = "",
    image: Annotated[str, typer.Option(help="The operator's image.", show_default="NAME:latest")] = "",
    replicas: Annotated[
        int, typer.Option(help="The number of replicas; one works, the others stand by.", min=0, show_default="1")
    ] = 0,
    form: Annotated[
        str, typer.Option("--format", help="yaml, kustomize, helm or olm; the last three need --out.")
    ] = "yaml",
    version: Annotated[
        str, typer.Option("--version", help="With --format olm: the operator's version.", show_default="0.1.0")
    ] = "0.1.0",
    service_monitor: Annotated[
        bool, typer.Option("--service-monitor", help="Add a ServiceMonitor of the Prometheus operator.")
    ] = False,
) -> None:
    """Print the CRDs, the least permissions, the Deployment, the webhook configurations and APIs of an operator.

    Of a scheduler the permissions and the Deployment; of a plug-in of nodes the DaemonSet. `[tool.pinnace]` in
    pyproject.toml gives the defaults: namespace, image, replicas, env, args, resources, service_monitor.

    \b
    Examples:
      pinnace manifests website.py | kubectl apply -f -
      pinnace manifests website.py --image registry.example.com/website:v1 -n operators --replicas 2
      pinnace manifests website.py --out deploy                 files, with a Dockerfile
      pinnace manifests website.py --out chart --format helm
      pinnace manifests website.py --out bundle --format olm --version 1.2.0
    """
    try:
        target = target_of(file, module)
        loaded = load(target)
        operator, source = loaded.program, file_of(target)
        settings = read_settings(find_project(source.parent))
        place = DeploymentOptions(
            namespace=namespace or settings.namespace,
            image=image or settings.image or f"{operator.name}:latest",
            file=_within_image(target, source),
            replicas=replicas or settings.replicas,
            env=settings.env,
            args=settings.args,
            program=OPERATOR_PROGRAM if isinstance(operator, Operator) else SCHEDULER_PROGRAM,
            resources=settings.resources,
            service_monitor=(service_monitor or settings.service_monitor) and form != "olm",
        )
        written = _manifests_of(operator, place, form)
        _check_form(form, operator, out)
        packed = {}
        if form == "olm" and isinstance(operator, Operator):
            packed = bundle(operator.declarations, written, place, version)
    except (NoOperator, NotStructural, ValueError) as error:
        fail(error)
    if out is None:
        print(as_documents([obj for objects in written.values() for obj in objects]), end="")
        return
    out.mkdir(parents=True, exist_ok=True)
    if form == "olm":
        _write_bundle(out, operator.name, packed)
    else:
        _write(out, form, operator.name, written, place)
    project = find_project(source.parent) if is_module(target) else None
    if project is not None and has_build(project):
        (out / "Dockerfile").write_text(project_dockerfile(place.file, place.program))
        beside = str(project)
    else:
        text = dockerfile(source, place.program, version=__version__, beside=loaded.files)
        (out / "Dockerfile").write_text(text)
        beside = source.name
    then = {
        "yaml": f"kubectl apply -f {out}",
        "kustomize": f"kubectl apply -k {out}",
        "helm": f"helm install {operator.name} {out}",
        "olm": f"the image of the bundle with {out / BUNDLE_DOCKERFILE}, and operator-sdk run bundle IMAGE",
    }[form]
    if form != "helm" and written.get(MONITOR):
        then += f", and where the Prometheus operator is installed kubectl apply -f {out / MONITORING}"
    print(f"written to {out}: build the image with its Dockerfile beside {beside}, then {then}")


def _check_form(form: str, operator: Runnable, out: Path | None) -> None:
    """Raise ValueError for a form that does not exist, or that the program does not have."""
    if form not in _FORMATS or (form != "yaml" and out is None):
        raise ValueError(f"--format {form}: choose from {', '.join(_FORMATS)}; {', '.join(_FORMATS[1:])} need --out")
    if isinstance(operator, NodePlugin) and form == "helm":
        raise ValueError("--format helm: a plug-in of nodes has no chart; choose yaml or kustomize")
    if form == "olm" and not isinstance(operator, Operator):
        raise ValueError("--format olm: a bundle is for an Operator; choose yaml or kustomize")


def _write_bundle(out: Path, operator: str, files: dict[str, Object]) -> None:
    for name, obj in files.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(as_documents([obj]))
    (out / BUNDLE_DOCKERFILE).write_text(bundle_dockerfile(operator))


def _within_image(target: str, source: Path) -> str:
    """Return the target as the image has it: the module, or the file without its directory, each with its :name."""
    if is_module(target):
        return target
    _, colon, name = target.rpartition(":")
    return f"{source.name}:{name}" if colon and name.isidentifier() else source.name


def _write(out: Path, form: str, operator: str, written: dict[str, list[Object]], place: DeploymentOptions) -> None:
    if form != "helm":
        for name, objects in written.items():
            if objects:
                path = out / MONITORING / name if name == MONITOR else out / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(as_documents(objects))
        if form == "kustomize":
            (out / "kustomization.yaml").write_text(as_documents([kustomization(written, place)]))
        return
    (out / "templates").mkdir(exist_ok=True)
    deployment = next(obj for obj in written["deployment.yaml"] if obj["kind"] == "Deployment")
    (out / "Chart.yaml").write_text(as_documents([chart(operator, __version__)]))
    (out / "values.yaml").write_text(as_documents([chart_values(place, deployment)]))
    if crds := chart_crds(written):
        (out / "crds").mkdir(exist_ok=True)
        (out / "crds" / "crds.yaml").write_text(as_documents(crds))
    for name, objects in chart_templates(written, place).items():
        (out / "templates" / name).write_text(finish_template(name, as_documents(objects)))


def _manifests_of(operator: Runnable, place: DeploymentOptions, form: str) -> dict[str, list[Object]]:
    if isinstance(operator, Operator):
        return {
            "crds.yaml": definitions(operator.declarations, place),
            "rbac.yaml": roles(operator.declarations, place),
            "deployment.yaml": workload(operator.declarations, place),
            MONITOR: monitoring(operator.declarations, place) if place.service_monitor or form == "helm" else [],
        }
    if isinstance(operator, NodePlugin):
        return operator.manifests(place)
    from pinnace.sdk.scheduling.manifests import scheduler_roles, scheduler_workload  # noqa: PLC0415 - it loads numpy
    from pinnace.sdk.scheduling.scheduler import Scheduler  # noqa: PLC0415 - as above

    permissions = operator.permissions() if isinstance(operator, Scheduler) else ()
    crds = operator.crds()
    return ({"crds.yaml": crds} if crds else {}) | {
        "rbac.yaml": scheduler_roles(operator.name, place, permissions),
        "deployment.yaml": scheduler_workload(operator.name, place),
    }
