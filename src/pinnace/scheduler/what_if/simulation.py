"""Schedule pods one after the other on a copy of the cluster, without writing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pinnace.model.typed_objects import Pod as PodObject
from pinnace.scheduler.decision import decide
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.state.cluster import ClusterState


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    """The outcome of one pod."""

    pod: str
    node: str
    """The node that it would run on; empty if it would wait."""
    message: str = ""
    evicted: tuple[str, ...] = ()
    """The pods that would be evicted to make room for it."""


class NoProfile(ValueError):
    """A pod names a scheduler that is not known here."""


def simulate(pods: Iterable[PodObject], state: ClusterState, profiles: Mapping[str, Profile]) -> Iterator[SimulatedPod]:
    """Yield the outcome of each pod. The state changes as the cluster would: it must be a copy."""
    for obj in pods:
        pod = state.pod(obj)
        pod.source = obj
        name = obj["spec"].get("schedulerName") or "default-scheduler"
        profile = profiles.get(name)
        if profile is None:
            raise NoProfile(
                f"{pod.key} is scheduled by {name}, which is not known here: name its file or configuration"
            )
        refusal = next((held for plugin in profile.pre_enqueue if (held := plugin.pre_enqueue(pod)) is not None), None)
        if refusal is not None:
            yield SimulatedPod(str(pod.key), "", refusal.message)
            continue
        decision = decide(pod, state, profile)
        nomination = decision.nomination
        if nomination is not None:
            for victim in nomination.victims:
                state.remove_pod(victim.uid)
        node = nomination.node if nomination is not None else decision.node
        if node:
            state.add_pod(pod, node)
        if decision.node:  # Devices and volumes that this pod gets are not there for the next one.
            for plugin in profile.reserve:
                plugin.reserve(decision.cycle, node)
        evicted = tuple(str(victim.key) for victim in nomination.victims) if nomination is not None else ()
        yield SimulatedPod(str(pod.key), node, "" if node else decision.message, evicted)
