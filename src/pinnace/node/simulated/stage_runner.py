"""Takes the objects of one kind through their stages: one write per effect, no timer without a delay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.node.simulated.stages import Delete, Effect, Emit, Life, Stage, StageContext, Staged, StagePatch
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

COMPONENT = "kubelet"
_POD = "v1/Pod"
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Plan:
    """A stage that an object has entered and whose delay is running."""

    uid: str
    stage: Stage
    due: float


class StageRunner:
    """Call `enqueue` for each object, and `forget` for each object that is gone."""

    def __init__(
        self,
        manager: Manager,
        client: Client,
        kind: str,
        life: Life,
        context: StageContext,
        *,
        node_of: Callable[[Staged], str],
    ) -> None:
        """`node_of` returns the node of an object; an empty name if that is not simulated, or does not run.

        Statuses and deletions are written as the node. No node may write the rest of an object: `client` does.
        """
        self._recorder = manager.recorder
        self._client = client
        self._clock = client.clock
        self._kind = kind
        self._life = life
        self._context = context
        self._node_of = node_of
        self._cache = manager.cache(kind)
        self._plans: dict[Key, _Plan] = {}
        name = f"simulated-{kind.rpartition('/')[2].lower()}-stages"
        self.controller = Controller(name, self._reconcile, workers=16)

    def enqueue(self, key: Key, reason: str) -> None:
        self.controller.enqueue(key, reason)

    def forget(self, key: Key) -> None:
        self._plans.pop(key, None)

    async def _reconcile(self, key: Key) -> Result | None:
        obj = self._cache.get(key)
        while obj is not None and self._node_of(obj):
            stage = self._stage_of(key, obj)
            if stage is None:
                return None
            wait = self._wait(key, obj, stage)
            if wait > 0:
                return Result(requeue_after=wait)
            effects = list(stage.effects(obj, self._context))
            if stage.is_mergeable:
                effects = self._merge_next(obj, effects)
            obj = await self._enter(key, obj, stage, effects)
        return None

    def _merge_next(self, obj: Object, effects: list[Effect]) -> list[Effect]:
        """Write a status once if the next stage follows without delay and writes the status too."""
        first = _status_in(effects)
        if first is None:
            return effects
        after = {**obj, "status": {**(obj.get("status") or {}), **first}}
        stages = self._life.stages_of(after)
        stage = self._life.choose(stages, after) if stages else None
        if stage is None or not stage.is_mergeable or stage.delay(after, self._clock.now()) > 0:
            return effects
        second = _status_in(list(stage.effects(after, self._context)))
        return effects if second is None else [StagePatch({"status": {**first, **second}})]

    def _stage_of(self, key: Key, obj: Object) -> Stage | None:
        """Return the stage that was chosen before if it still matches; else choose one that matches now."""
        stages = self._life.stages_of(obj)
        plan = self._plans.get(key)
        if plan is not None and plan.uid == obj["metadata"]["uid"] and plan.stage in stages:
            return plan.stage
        self._plans.pop(key, None)
        return self._life.choose(stages, obj) if stages else None

    def _wait(self, key: Key, obj: Object, stage: Stage) -> float:
        """Return the seconds until the delay of a stage is over. It begins when the stage is first found to match."""
        now = self._clock.monotonic()
        plan = self._plans.get(key)
        if plan is None:
            delay = stage.delay(obj, self._clock.now())
            if delay <= 0:
                return 0.0
            plan = self._plans[key] = _Plan(obj["metadata"]["uid"], stage, now + delay)
        return plan.due - now

    async def _enter(self, key: Key, obj: Object, stage: Stage, effects: Iterable[Effect]) -> Object | None:
        """Apply the effects of a stage. Return the object to continue with; None to wait for the watch."""
        self._plans.pop(key, None)
        latest: Object | None = obj
        try:
            for effect in effects:
                latest = await self._apply(key, obj, effect, latest)
        except (errors.NotFound, errors.Conflict) as error:
            _log.debug("%s did not enter %s: %s", key, stage.name, error)
            return None
        if latest is None or not stage.is_followed_at_once or latest["metadata"]["uid"] != obj["metadata"]["uid"]:
            return None
        return latest

    async def _apply(self, key: Key, obj: Object, effect: Effect, latest: Object | None) -> Object | None:
        """Apply one effect. Return the object after it; None once the object is deleted."""
        match effect:
            case StagePatch(body, subresource, form):
                client = self._kubelet(obj) if subresource == "status" else self._client
                return await client.patch(
                    self._kind, key.name, body, namespace=key.namespace, subresource=subresource, form=form
                )
            case Delete():
                uid = obj["metadata"]["uid"]
                client = self._kubelet(obj) if self._kind == _POD else self._client
                await client.delete(self._kind, key.name, namespace=key.namespace, grace_seconds=0, uid=uid)
                return None
            case Emit(type_, reason, message):
                self._recorder.record(obj, type_, reason, message, component=COMPONENT)
                return latest

    def _kubelet(self, obj: Object) -> Client:
        node = self._node_of(obj)
        return self._context.kubelet(node) if node else self._client


def _status_in(effects: list[Effect]) -> Object | None:
    """The status that a stage writes, if it does nothing else."""
    if len(effects) != 1 or not isinstance(effects[0], StagePatch):
        return None
    body, subresource, form = effects[0]
    if subresource != "status" or form != "merge" or not isinstance(body, dict) or list(body) != ["status"]:
        return None
    status: Object = body["status"]
    return status
