"""Validation of the spec of jobs and job templates: counts, indexes, failure and success policies."""

from __future__ import annotations

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.validation import validate_template
from pinnace.kinds.validation.fields import validate_counts, validate_domain_path, validate_qualified_name
from pinnace.model.field_errors import FieldError, duplicate, invalid, not_supported, required, too_long, too_many
from pinnace.model.typed_objects import (
    JobSpec,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
)
from pinnace.schema.golang.numbers import parse_int

_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_MOST_PARALLEL = 100_000
_MANY_COMPLETIONS = 100_000
_MOST_PARALLEL_WITH_MANY = 10_000
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")

FAILURE_POLICY = GoStruct(
    "Rules",
    Rules=GoStruct(
        "Action='' OnExitCodes OnPodConditions",
        OnExitCodes=GoStruct("ContainerName Operator='' Values"),
        OnPodConditions=GoStruct("Type='' Status=''"),
    ),
)
SUCCESS_POLICY = GoStruct("Rules", Rules=GoStruct("SucceededIndexes SucceededCount"))


def without_value(path: str, detail: str) -> FieldError:
    """Return an error without its value, which is too large to print."""
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}")


def validate_job_spec(spec: JobSpec, path: str, errs: list[FieldError]) -> None:
    """Check what a job and the template of a cron job have in common. Selectors are checked elsewhere."""
    errs += validate_counts(spec, _COUNTS, path)
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        errs.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if "managedBy" in spec:
        _validate_manager(spec["managedBy"], f"{path}.managedBy", errs)
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in ("NonIndexed", "Indexed"):
        errs.append(not_supported(f"{path}.completionMode", mode, ["NonIndexed", "Indexed"]))
    elif mode == "Indexed":
        _validate_indexed(spec, path, errs)
    else:
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if field in spec:
                errs.append(invalid(f"{path}.{field}", spec[field], "requires indexed completion mode"))
    if "podFailurePolicy" in spec:
        _validate_failure_policy(spec, f"{path}.podFailurePolicy", errs)
    if "successPolicy" in spec:
        if mode != "Indexed":
            view = SUCCESS_POLICY.view(spec["successPolicy"])
            errs.append(invalid(f"{path}.successPolicy", view, "requires indexed completion mode"))
        else:
            _validate_success_policy(spec, f"{path}.successPolicy", errs)
    replacement = spec.get("podReplacementPolicy")
    if replacement is not None:
        supported = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
        if replacement not in supported:
            errs.append(not_supported(f"{path}.podReplacementPolicy", replacement, supported))
    validate_template(spec["template"], f"{path}.template", errs)
    _validate_restart(spec, f"{path}.template.spec.restartPolicy", errs)


def _validate_restart(spec: JobSpec, path: str, errs: list[FieldError]) -> None:
    policy = spec["template"]["spec"].get("restartPolicy", "")
    if policy in ("", "Always"):
        errs.append(required(path, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        errs.append(not_supported(path, policy, ["OnFailure", "Never"]))
    elif "podFailurePolicy" in spec and policy != "Never":
        errs.append(invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified'))


def _validate_manager(manager: str, path: str, errs: list[FieldError]) -> None:
    errs.extend(validate_domain_path(manager, path))
    if len(manager) > 63:
        errs.append(too_long(path, 63))


def _validate_indexed(spec: JobSpec, path: str, errs: list[FieldError]) -> None:
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 0)
    failed = spec.get("maxFailedIndexes")
    if completions is None:
        errs.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if parallelism > _MOST_PARALLEL:
        detail = f"must be less than or equal to {_MOST_PARALLEL} when completion mode is Indexed"
        errs.append(invalid(f"{path}.parallelism", parallelism, detail))
    if completions is not None and failed is not None and failed > completions:
        errs.append(invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    if failed is not None and failed > _MOST_PARALLEL:
        errs.append(invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MOST_PARALLEL}"))
    if completions is not None and completions > _MANY_COMPLETIONS and "backoffLimitPerIndex" in spec:
        if failed is None:
            detail = f"must be specified when completions is above {_MANY_COMPLETIONS}"
            errs.append(required(f"{path}.maxFailedIndexes", detail))
        for field, value in (("parallelism", parallelism), ("maxFailedIndexes", failed or 0)):
            if value > _MOST_PARALLEL_WITH_MANY:
                detail = (
                    f"must be less than or equal to {_MOST_PARALLEL_WITH_MANY} when completions are above "
                    f"{_MANY_COMPLETIONS} and used with backoff limit per index"
                )
                errs.append(invalid(f"{path}.{field}", value, detail))


def _validate_failure_policy(spec: JobSpec, path: str, errs: list[FieldError]) -> None:
    rules, pod = spec["podFailurePolicy"].get("rules") or [], spec["template"]["spec"]
    if len(rules) > 20:
        errs.append(too_many(f"{path}.rules", len(rules), 20))
    containers = {c.get("name", "") for c in (*pod.get("containers", ()), *pod.get("initContainers", ()))}
    for index, rule in enumerate(rules):
        where, action = f"{path}.rules[{index}]", rule.get("action", "")
        if not action:
            errs.append(required(f"{where}.action", 'valid values: ["Count" "FailIndex" "FailJob" "Ignore"]'))
        elif action == "FailIndex":
            if "backoffLimitPerIndex" not in spec:
                errs.append(invalid(f"{where}.action", action, "requires the backoffLimitPerIndex to be set"))
        elif action not in _ACTIONS:
            errs.append(not_supported(f"{where}.action", action, _ACTIONS))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            _validate_exit_code(codes, containers, f"{where}.onExitCodes", errs)
        if conditions:
            _validate_condition(conditions, f"{where}.onPodConditions", errs)
        if codes is not None and conditions:
            errs.append(without_value(where, "specifying both OnExitCodes and OnPodConditions is not supported"))
        if codes is None and not conditions:
            errs.append(without_value(where, "specifying one of OnExitCodes and OnPodConditions is required"))


def _validate_exit_code(
    codes: PodFailurePolicyOnExitCodesRequirement, containers: set[str], path: str, errs: list[FieldError]
) -> None:
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        errs.append(required(f"{path}.operator", 'valid values: ["In" "NotIn"]'))
    elif operator not in ("In", "NotIn"):
        errs.append(not_supported(f"{path}.operator", operator, ["In", "NotIn"]))
    name = codes.get("containerName")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        errs.append(invalid(f"{path}.containerName", name, detail))
    if not values:
        errs.append(invalid(f"{path}.values", codes.get("values"), "at least one value is required"))
    elif len(values) > 255:
        errs.append(too_many(f"{path}.values", len(values), 255))
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            errs.append(invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in seen:
            errs.append(duplicate(f"{path}.values[{index}]", value))
        seen.add(value)
    if values != sorted(values):
        errs.append(invalid(f"{path}.values", values, "must be ordered"))


def _validate_condition(
    conditions: list[PodFailurePolicyOnPodConditionsPattern], path: str, errs: list[FieldError]
) -> None:
    if len(conditions) > 20:
        errs.append(too_many(path, len(conditions), 20))
    for index, pattern in enumerate(conditions):
        errs += validate_qualified_name(pattern.get("type", ""), f"{path}[{index}].type")
        status = pattern.get("status", "")
        if not status:
            errs.append(required(f"{path}[{index}].status", 'valid values: ["False" "True" "Unknown"]'))
        elif status not in ("False", "True", "Unknown"):
            errs.append(not_supported(f"{path}[{index}].status", status, ["False", "True", "Unknown"]))


def _validate_success_policy(spec: JobSpec, path: str, errs: list[FieldError]) -> None:
    rules, completions = spec["successPolicy"].get("rules") or [], spec.get("completions", 0)
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        errs.append(required(f"{path}.rules", detail))
    if len(rules) > 20:
        errs.append(too_many(f"{path}.rules", len(rules), 20))
    for index, rule in enumerate(rules):
        where = f"{path}.rules[{index}]"
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            errs.append(required(where, detail))
        total = 0
        if indexes is not None:
            if len(indexes) > 64 * 1024:
                errs.append(too_long(f"{where}.succeededIndexes", 64 * 1024))
            try:
                total = count_of_indexes(indexes, completions)
            except ValueError as err:
                detail = f"error parsing succeededIndexes: {err}"
                errs.append(invalid(f"{where}.succeededIndexes", indexes, detail))
        if count is not None:
            errs += validate_counts(rule, ("succeededCount",), where)
            if count > completions:
                detail = f"must be less than or equal to {completions} (the number of specified completions)"
                errs.append(invalid(f"{where}.succeededCount", count, detail))
            if indexes is not None and count > total:
                detail = (
                    f"must be less than or equal to {total} "
                    "(the number of indexes in the specified succeededIndexes field)"
                )
                errs.append(invalid(f"{where}.succeededCount", count, detail))


def count_of_indexes(text: str, completions: int) -> int:
    """Return the number of indexes in a list such as 1,3-5. Raise ValueError with Kubernetes' message."""
    total, last = 0, -1
    for interval in text.split(",") if text else ():
        first, end = index_interval(interval, completions)
        if total and last >= first:
            raise ValueError(f"non-increasing order, previous: {last}, current: {first}")
        total += end - first + 1
        last = end
    return total


def index_interval(text: str, completions: int) -> tuple[int, int]:
    parts = text.split("-")
    if len(parts) > 2:
        raise ValueError(
            f'the fragment "{text}" violates the requirement that an index interval can have at most two parts '
            "separated by '-'"
        )
    ends = []
    for part in parts:
        index = parse_int(part)
        if index is None:
            raise ValueError(f'cannot convert string to integer for index: "{part}"')
        if index >= completions:
            raise ValueError(f'too large index: "{part}"')
        ends.append(index)
    if len(ends) > 1 and ends[0] >= ends[1]:
        raise ValueError(f"non-increasing order, previous: {ends[0]}, current: {ends[1]}")
    return ends[0], ends[-1]
