"""Reads stages from files: `pinnace up --nodes 3 --stages my-stages.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from pinnace.client.writing import PatchForm
from pinnace.model.objects import Object
from pinnace.node.simulated.kwok.cel import CelQuery
from pinnace.node.simulated.kwok.jq import InvalidExpression, Query
from pinnace.node.simulated.kwok.selection import Amount, Selector, StageRequirement
from pinnace.node.simulated.kwok.stage import FinalizerStep, KwokLife, KwokStage, PatchStep, Step
from pinnace.node.simulated.kwok.template import GoTemplate
from pinnace.node.simulated.kwok.template_syntax import TemplateError
from pinnace.node.simulated.stages import Delete, Emit, InvalidStage

API_VERSION = "kwok.x-k8s.io/v1alpha1"
_KINDS = ("Pod", "Node")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_FORMS: dict[str | None, PatchForm] = {None: "strategic", "json": "json", "merge": "merge", "strategic": "strategic"}


_FIELDS: dict[str, frozenset[str]] = {
    where: frozenset(fields.split())
    for where, fields in {
        "": "resourceRef selector weight weightFrom delay next steps immediateNextStage",
        "resourceRef": "apiGroup kind",
        "selector": "matchLabels matchAnnotations matchExpressions",
        "selector.matchExpressions": "cel jq key operator values",
        "delay": "durationMilliseconds durationFrom jitterDurationMilliseconds jitterDurationFrom",
        "next": "event finalizers delete statusTemplate statusSubresource patches",
        "steps": "event finalizers delete patch",
        "steps.patch": "template type root subresource",
        "steps.event": "type reason message",
        "steps.finalizers": "add remove empty",
    }.items()
}
"""The fields of a stage by the place where they stand; others are refused."""


@dataclass(frozen=True, slots=True)
class Lives:
    """The stages of a file for pods and for nodes; None where the file has none."""

    pods: KwokLife | None = None
    nodes: KwokLife | None = None


def load_stages(path: Path) -> Lives:
    """Read a file of Stages, one YAML document each. Skip documents of other kinds. Raise InvalidStage."""
    try:
        documents = list(yaml.load_all(path.read_text(), yaml.CSafeLoader))
    except OSError as error:
        raise InvalidStage(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidStage(f"{path} is not YAML: {error}") from error
    stages: dict[str, list[KwokStage]] = {kind: [] for kind in _KINDS}
    for document in documents:
        for entry in _stages_in(document):
            kind, stage = _read(entry, path)
            if stage is not None:
                stages[kind].append(stage)
    if not any(stages.values()):
        raise InvalidStage(f"{path} has no Stage of {API_VERSION} for a Pod or a Node")
    pods, nodes = stages["Pod"], stages["Node"]
    return Lives(KwokLife(pods) if pods else None, KwokLife(nodes) if nodes else None)


def _stages_in(document: Any) -> Iterator[Object]:
    if not isinstance(document, dict):
        return
    if document.get("kind") in ("List", "StageList"):
        for item in document.get("items") or ():
            yield from _stages_in(item)
    elif document.get("kind") == "Stage" and document.get("apiVersion") == API_VERSION:
        yield document


def _read(document: Object, path: Path) -> tuple[str, KwokStage | None]:
    """Return the kind that a stage is for, and the stage; None if it selects nothing."""
    name = str((document.get("metadata") or {}).get("name") or "")
    try:
        spec = document["spec"]
        kind = str(spec["resourceRef"]["kind"])
        if kind not in _KINDS:
            raise InvalidStage(f"it is for {kind}; simulated nodes have stages for {' and '.join(_KINDS)} only")
        _check_fields(spec, "")
        if spec.get("selector") is None:
            return kind, None
        return kind, KwokStage(
            name=name,
            selector=_selector(spec["selector"]),
            weight=_amount(spec.get("weight") or 0, spec.get("weightFrom")),
            duration=_milliseconds(spec.get("delay") or {}, "duration"),
            jitter=_milliseconds(spec.get("delay") or {}, "jitterDuration"),
            steps=tuple(_steps(spec)),
            is_followed_at_once=bool(spec.get("immediateNextStage")),
        )
    except KeyError as missing:
        raise InvalidStage(f"{path}: the stage {name!r} has no {missing.args[0]}") from missing
    except (InvalidStage, InvalidExpression, TemplateError, TypeError, AttributeError) as error:
        raise InvalidStage(f"{path}: the stage {name!r} cannot be read: {error}") from error


def _check_fields(part: Object, where: str) -> None:
    """Raise InvalidStage for a field that KWOK does not have, or that simulated nodes do not obey."""
    for field, value in part.items():
        if field not in _FIELDS[where]:
            name = f"{where}.{field}" if where else field
            raise InvalidStage(f"the field spec.{name} is not supported; known: {', '.join(sorted(_FIELDS[where]))}")
        inner = f"{where}.{field}" if where else field
        if inner in _FIELDS and isinstance(value, dict):
            _check_fields(value, inner)


def _selector(selector: Object) -> Selector:
    requirements: list[StageRequirement] = []
    for expression in selector.get("matchExpressions") or ():
        _check_fields(expression, "selector.matchExpressions")
        if "cel" in expression:
            requirements.append(StageRequirement(CelQuery(expression["cel"]["expression"]), "In", ("true",)))
            continue
        given = expression.get("jq") or expression
        operator, values = given["operator"], tuple(map(str, given.get("values") or ()))
        if operator not in _OPERATORS:
            raise InvalidStage(f"the operator {operator!r} is none of {', '.join(_OPERATORS)}")
        if bool(values) is not (operator in ("In", "NotIn")):
            raise InvalidStage(f"the operator {operator} takes {'no ' if values else ''}values")
        requirements.append(StageRequirement(Query(given["key"]), operator, values))
    labels, annotations = selector.get("matchLabels") or {}, selector.get("matchAnnotations") or {}
    return Selector(tuple(labels.items()), tuple(annotations.items()), tuple(requirements))


def _amount(value: int | None, source: Object | None) -> Amount:
    if source is None:
        return Amount(value)
    if "cel" in source:
        return Amount(value, CelQuery(source["cel"]["expression"]))
    text = (source.get("jq") or {}).get("expression") or source["expressionFrom"]
    return Amount(value, Query(text))


def _milliseconds(delay: Object, field: str) -> Amount | None:
    value, source = delay.get(f"{field}Milliseconds"), delay.get(f"{field}From")
    if value is None and source is None:
        return None
    return _amount(value, source)


def _steps(spec: Object) -> Iterator[Step]:
    if spec.get("steps"):
        for step in spec["steps"]:
            yield from _step(step)
        return
    following = spec.get("next") or {}
    yield from _step({name: following.get(name) for name in ("event", "finalizers", "delete")})
    if following.get("statusTemplate"):
        subresource = following.get("statusSubresource") or "status"
        yield PatchStep(GoTemplate(following["statusTemplate"]), "status", subresource, "strategic")
    for patch in following.get("patches") or ():
        yield _patch(patch)


def _step(step: Object) -> Iterator[Step]:
    _check_fields({name: value for name, value in step.items() if value is not None}, "steps")
    if step.get("event"):
        event = step["event"]
        kind: Literal["Normal", "Warning"] = "Warning" if event.get("type") == "Warning" else "Normal"
        yield Emit(kind, event.get("reason", ""), event.get("message", ""))
    if step.get("finalizers"):
        given = step["finalizers"]
        yield FinalizerStep(
            add=tuple(entry["value"] for entry in given.get("add") or ()),
            remove=tuple(entry["value"] for entry in given.get("remove") or ()),
            empties=bool(given.get("empty")),
        )
    if step.get("delete"):
        yield Delete()
    if step.get("patch"):
        yield _patch(step["patch"])


def _patch(patch: Object) -> PatchStep:
    _check_fields(patch, "steps.patch")
    form = patch.get("type")
    if form not in _FORMS:
        raise InvalidStage(f"the patch type {form!r} is none of json, merge, strategic")
    return PatchStep(
        GoTemplate(patch["template"]), patch.get("root") or "", patch.get("subresource") or "", _FORMS[form]
    )
