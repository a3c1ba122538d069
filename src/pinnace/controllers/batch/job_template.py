"""The pods that a Job creates."""

from __future__ import annotations

from pinnace.controllers.batch.job_pods import FINALIZER, IGNORED_INDEX_FAILURES, INDEX, INDEX_FAILURES, JobPod
from pinnace.controllers.batch.job_policies import Judgment
from pinnace.controllers.workloads.pod_control import pod_from_template
from pinnace.model.objects import Object

_ENVIRONMENT = "JOB_COMPLETION_INDEX"
_LONGEST_PREFIX = 58


def pod_of_job(
    job: Object, *, index: int | None = None, replaced: JobPod | None = None, judgment: Judgment | None = None
) -> Object:
    """Return the pod to create, for one index of an Indexed Job.

    Where failures are counted per index, `replaced` is the failed pod that the new one replaces, and `judgment` is the
    effect of the pod failure policy on it.
    """
    pod = pod_from_template(job, job["spec"]["template"])
    metadata = pod["metadata"]
    finalizers = list(metadata.get("finalizers") or ())
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    metadata["finalizers"] = finalizers
    if index is None:
        return pod
    annotations = {**(metadata.get("annotations") or {}), INDEX: str(index)}
    if "backoffLimitPerIndex" in job["spec"]:
        annotations |= _index_failures(replaced, judgment)
    metadata["annotations"] = annotations
    metadata["labels"] = {**(metadata.get("labels") or {}), INDEX: str(index)}
    name, suffix = job["metadata"]["name"], f"-{index}-"
    metadata["generateName"] = name[: _LONGEST_PREFIX - len(suffix)] + suffix
    pod["spec"] = {**_with_environment(pod["spec"]), "hostname": f"{name}-{index}"}
    return pod


def _index_failures(replaced: JobPod | None, judgment: Judgment | None) -> dict[str, str]:
    if replaced is None:
        return {INDEX_FAILURES: "0"}
    counts = judgment is None or judgment.counts
    failures = replaced.index_failures + counts
    ignored = replaced.ignored_index_failures + (not counts)
    annotations = {INDEX_FAILURES: str(failures)}
    return {**annotations, IGNORED_INDEX_FAILURES: str(ignored)} if ignored else annotations


def _with_environment(spec: Object) -> Object:
    made = dict(spec)
    for field in ("initContainers", "containers"):
        if spec.get(field):
            made[field] = [_with_index_variable(container) for container in spec[field]]
    return made


def _with_index_variable(container: Object) -> Object:
    variables = container.get("env") or []
    if any(one["name"] == _ENVIRONMENT for one in variables):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    return {**container, "env": [*variables, {"name": _ENVIRONMENT, "valueFrom": source}]}
