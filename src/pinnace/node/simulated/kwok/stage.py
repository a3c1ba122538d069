"""A stage of KWOK, run by simulated nodes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import yaml

from pinnace import __version__
from pinnace.client.writing import PatchForm
from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod
from pinnace.node.simulated.kwok.selection import Amount, Selector
from pinnace.node.simulated.kwok.template import Functions, GoTemplate
from pinnace.node.simulated.kwok.template_syntax import TemplateError
from pinnace.node.simulated.machines import ready_conditions
from pinnace.node.simulated.stages import Delete, Effect, Emit, SimulatedPodHead, Stage, StageContext, StagePatch


@dataclass(frozen=True, slots=True)
class PatchStep:
    """Patch the object with the result of a template."""

    template: GoTemplate
    root: str
    subresource: str
    form: PatchForm


@dataclass(frozen=True, slots=True)
class FinalizerStep:
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    empties: bool = False


_ROUTED = {
    "type": "NetworkUnavailable",
    "status": "False",
    "reason": "RouteCreated",
    "message": "RouteController created a route",
}
Step = PatchStep | FinalizerStep | Emit | Delete


@dataclass(frozen=True, slots=True, eq=False)
class KwokStage:
    """One Stage object."""

    name: str
    selector: Selector
    weight: Amount
    duration: Amount | None
    jitter: Amount | None
    steps: tuple[Step, ...]
    is_followed_at_once: bool
    is_mergeable: bool = False

    def delay(self, obj: Object, now: datetime) -> float:
        """Return a random delay between duration and jitterDuration; the latter if it is shorter."""
        seconds = self.duration.seconds(obj, now) if self.duration is not None else None
        if seconds is None:
            return 0.0
        longest = self.jitter.seconds(obj, now) if self.jitter is not None else None
        if longest is None:
            return seconds
        return longest if longest <= seconds else random.uniform(seconds, longest)

    def effects(self, obj: Object, context: StageContext) -> Iterator[Effect]:
        functions = _functions(obj, context)
        for step in self.steps:
            match step:
                case PatchStep(template, root, subresource, form):
                    yield StagePatch(_nest(_render(template, obj, functions), root), subresource, form)
                case FinalizerStep():
                    finalizers = obj["metadata"].get("finalizers") or []
                    wanted = _finalizers(finalizers, step)
                    if wanted != finalizers:
                        # With the version: a finalizer that another client adds meanwhile is not lost.
                        version = obj["metadata"]["resourceVersion"]
                        metadata = {"finalizers": wanted or None, "resourceVersion": version}
                        yield StagePatch({"metadata": metadata}, "", "merge")
                case _:
                    yield step


def _finalizers(present: Sequence[str], step: FinalizerStep) -> list[str]:
    kept = [] if step.empties else [finalizer for finalizer in present if finalizer not in step.remove]
    return [*kept, *(finalizer for finalizer in step.add if finalizer not in kept)]


class _Loader(yaml.CSafeLoader):
    """Parses what looks like a date as text, as Kubernetes does."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the name and the shape are PyYAML's
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


def _render(template: GoTemplate, obj: Object, functions: Functions) -> Any:
    text = template.render(obj, functions)
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise TemplateError(f"the template gives no YAML: {error}") from error


def _nest(body: Any, root: str) -> Any:
    if not root:
        return body
    if isinstance(body, list):
        return [{**operation, "path": f"/{root}{operation['path']}"} for operation in body]
    return {root: body or {}}


def _functions(obj: Object, context: StageContext) -> Functions:
    name = obj["metadata"]["name"]

    def host_ip(node: str) -> str:
        return next(iter(context.host_ips(node)), "")

    def pod_ips(*_: Any) -> list[str]:
        return list(context.pod_ips(cast(Pod, obj)))

    return {
        "Now": lambda: context.now,
        "StartTime": lambda: context.now,
        "Version": lambda: __version__,
        "NodeConditions": lambda: [*ready_conditions([], now=context.now)[::-1], _ROUTED],
        "NodeIP": lambda: context.node_ip(obj["spec"].get("nodeName") or name),
        "NodeName": lambda: obj["spec"].get("nodeName") or name,
        "NodePort": lambda: 0,
        "NodeIPWith": host_ip,
        "NodeIPsWith": lambda node: list(context.host_ips(node)),
        "PodIP": lambda: pod_ips()[0],
        "PodIPWith": lambda *_: pod_ips()[0],
        "PodIPsWith": pod_ips,
    }


class KwokLife:
    """A `Life` of the stages of a file."""

    def __init__(self, stages: Iterable[KwokStage], *, chance: random.Random | None = None) -> None:
        self._stages = list(stages)
        self._chance = chance or random.Random()

    def concerns(self, head: SimulatedPodHead) -> bool:
        return True

    def stages_of(self, obj: Object) -> list[Stage]:
        return [stage for stage in self._stages if stage.selector.matches(obj)]

    def choose(self, stages: list[Stage], obj: Object) -> Stage:
        """Choose by weight, or at random without weights. Stages with unreadable weights come last."""
        weights = [stage.weight.number(obj) if isinstance(stage, KwokStage) else None for stage in stages]
        known = [(stage, weight) for stage, weight in zip(stages, weights, strict=True) if weight is not None]
        heavy = [(stage, weight) for stage, weight in known if weight > 0]
        if heavy:
            return self._chance.choices([stage for stage, _ in heavy], [weight for _, weight in heavy])[0]
        return self._chance.choice([stage for stage, _ in known] or stages)
