"""A custom scheduler's functions as an HTTP extender, which kube-scheduler calls after its own filters and scores."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

from aiohttp import web

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Node, ObjectMeta
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.scheduler.extenders import wire
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.guard import check_range, score_array
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.status import Code, PluginError
from pinnace.scheduler.state.arrays import ALL, Slots, slots_of
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod

_log = logging.getLogger(__name__)
_LARGEST_BODY = 256 * 1024 * 1024
"""Without `nodeCacheCapable` kube-scheduler sends every node in full."""


class ExtenderServer:
    """Answers the verbs filter, prioritize and bind.

    `state` is the cluster as this process follows it; without one, requests must carry the nodes in full.
    """

    def __init__(self, profile: Profile, state: ClusterState | None = None) -> None:
        self._profile = profile
        self._state = state

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_post("/filter", self._answering(self._filter))
        app.router.add_post("/prioritize", self._answering(self._prioritize))
        app.router.add_post("/bind", self._bind)
        app.router.add_get("/healthz", _healthy)
        return app

    def filter(self, pod: Object, names: list[str], nodes: list[Object] | None) -> wire.FilterResult:
        """Return the nodes that pass the filters."""
        cycle, slots = self._cycle(pod, names, nodes)
        try:
            diagnosis = self._profile.diagnose(cycle, self._profile.prepare(cycle), slots)
        except PluginError as error:
            return wire.FilterResult(None, error=str(error))
        known = cycle.state.nodes.names
        refused = {known[slot]: refusal for slot in slots.tolist() if (refusal := diagnosis.of(slot)) is not None}
        return wire.FilterResult(
            tuple(known[slot] for slot in slots.tolist() if known[slot] not in refused),
            failed={name: refusal.message for name, refusal in refused.items() if refusal.code is Code.UNSCHEDULABLE},
            unresolvable={
                name: refusal.message for name, refusal in refused.items() if refusal.code is not Code.UNSCHEDULABLE
            },
        )

    def prioritize(self, pod: Object, names: list[str], nodes: list[Object] | None) -> dict[str, int]:
        """Return a score from 0 to 10 for each node: the average of the functions, by their weights."""
        cycle, slots = self._cycle(pod, names, nodes)
        mask = cycle.state.nodes.present.copy()
        mask[:] = False
        mask[slots] = True
        for prepare in self._profile.pre_score:
            prepare.pre_score(cycle, mask)
        totals = dict.fromkeys(slots.tolist(), 0)
        weights = 0
        for weighted in self._profile.score:
            scores = score_array(weighted.plugin, cycle, ALL)[slots]
            if weighted.normalizer is not None and len(slots):
                scores = weighted.normalizer.normalize(cycle, scores, slots)
            check_range(weighted.plugin.name, scores)
            weights += weighted.weight
            for slot, score in zip(slots.tolist(), scores.tolist(), strict=True):
                totals[slot] += weighted.weight * score
        known = cycle.state.nodes.names
        return {known[slot]: round(total / (weights * 10)) if weights else 0 for slot, total in totals.items()}

    def _cycle(self, pod: Object, names: list[str], nodes: list[Object] | None) -> tuple[Cycle, Slots]:
        state = self._state
        if state is None:
            if nodes is None:
                raise wire.InvalidExtenderAnswer(
                    "expected Nodes, found NodeNames: set nodeCacheCapable to false in the configuration"
                )
            state = ClusterState()
            for node in nodes:
                state.put_node(cast("Node", node))
        record: Pod = state.pod(cast("PodObject", pod))
        record.source = cast("PodObject", pod)
        wanted = set(names)
        slots = slots_of(ALL, state.size)
        chosen = [slot for slot in slots.tolist() if state.nodes.names[slot] in wanted and state.nodes.present[slot]]
        return Cycle(record, state, Random(0)), slots[chosen]

    async def _filter(self, pod: Object, names: list[str], nodes: list[Object] | None) -> Any:
        return wire.filter_body(self.filter(pod, names, nodes), cast("list[Node] | None", nodes))

    async def _prioritize(self, pod: Object, names: list[str], nodes: list[Object] | None) -> Any:
        return wire.priorities_body(self.prioritize(pod, names, nodes))

    def _answering(
        self, answer: Callable[[Object, list[str], list[Object] | None], Awaitable[Any]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def respond(request: web.Request) -> web.Response:
            try:
                body = await answer(*wire.parse_arguments(json.loads(await request.read())))
            except (wire.InvalidExtenderAnswer, json.JSONDecodeError, KeyError, TypeError) as error:
                return web.Response(status=400, text=str(error))
            except PluginError as error:
                _log.error("extender request failed: %s", error)
                return web.Response(status=500, text=str(error))
            return web.json_response(body)

        return respond

    async def _bind(self, request: web.Request) -> web.Response:
        fields = wire.fold(json.loads(await request.read()))
        metadata: ObjectMeta = {
            "name": fields.get("podname", ""),
            "namespace": fields.get("podnamespace", ""),
            "uid": fields.get("poduid", ""),
        }
        state = ClusterState()
        cycle = Cycle(state.pod({"metadata": metadata, "spec": {"containers": []}}), state, Random(0))
        try:
            for binder in self._profile.bind:
                if await binder.bind(cycle, fields.get("node", "")):
                    return web.json_response({"Error": ""})
        except Exception as error:  # The author's function may raise anything.
            return web.json_response({"Error": f"{type(error).__name__}: {error}"})
        return web.json_response({"Error": f"{self._profile.name} has no function under @scheduler.bind"})


@asynccontextmanager
async def extender_listening(server: ExtenderServer, port: int, *, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Serve an extender within a block; yield the port. Port 0 takes a free one."""
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _healthy(request: web.Request) -> web.Response:
    return web.Response(text="ok")
