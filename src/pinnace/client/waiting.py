"""Wait for objects and roll-outs, as `kubectl wait` and `kubectl rollout` do.

await client.wait("v1/Pod", "web", "condition=Ready")
await client.wait(Website, "blog", lambda site: site.status.ready > 0, timeout=60)
await client.wait_for_rollout("apps/v1/Deployment", "web")
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, overload

from pinnace.client.following import Event, FollowError, Synced
from pinnace.client.mapping import KindLike, KindName, kind_from
from pinnace.client.reading import Reading
from pinnace.client.typed import Resource, typed
from pinnace.client.writing import Writing
from pinnace.model import errors
from pinnace.model.jsonpath import compile_path, text_of
from pinnace.model.objects import Object
from pinnace.process.clock import AlarmClock, to_rfc3339

_JSON_PATH = re.compile(r"jsonpath=(?P<path>\{[^{}]*\})(=(?P<value>.*))?", re.DOTALL)
_CONDITION = re.compile(r"condition=(?P<type>[^=]+)(=(?P<status>[^=]+))?")
_FORMS = "condition=TYPE[=STATUS], jsonpath={.path}[=VALUE], create or delete"
_RESTARTED = "kubectl.kubernetes.io/restartedAt"


class WaitTimeout(TimeoutError):
    """The object was not as wanted in time. `last` is its last state; None if it did not exist."""

    def __init__(self, message: str, last: Object | None) -> None:
        super().__init__(message)
        self.last = last


class RolloutFailed(Exception):
    """A roll-out has exceeded its progress deadline."""


class ObjectWaits(Reading, Writing):
    """The waiting part of a `Client`."""

    @overload
    async def wait(
        self,
        kind: type[Resource],
        name: str,
        until: str | Callable[[Resource], bool] = "condition=Ready",
        *,
        namespace: str = "",
        timeout: float = 30.0,
    ) -> Resource | None: ...
    @overload
    async def wait(
        self,
        kind: KindName,
        name: str,
        until: str | Callable[[Object], bool] = "condition=Ready",
        *,
        namespace: str = "",
        timeout: float = 30.0,
    ) -> Object | None: ...
    async def wait(
        self,
        kind: Any,
        name: str,
        until: str | Callable[[Any], bool] = "condition=Ready",
        *,
        namespace: str = "",
        timeout: float = 30.0,
    ) -> Any:
        """Return an object as soon as it is as wanted; None once it is deleted, if that is wanted.

        `until` is a function of the object, or a text as for `kubectl wait --for`: "condition=Ready",
        "condition=Ready=False", "jsonpath={.status.phase}=Running", "create" or "delete". An object that does not
        exist is waited for. Raise WaitTimeout after `timeout` seconds.
        """
        is_done = until if callable(until) else _parse(until)
        is_deletion = until == "delete"
        plain = not callable(until)
        last: Object | None = None
        try:
            async with _limit(self.clock, timeout), aclosing(_states(self, kind, name, namespace)) as states:
                async for last in states:
                    if last is None:
                        if is_deletion:
                            return None
                    elif not is_deletion and is_done(last if plain else typed(kind, last)):
                        return typed(kind, last)
        except TimeoutError:
            title = f"{kind_from(kind).name} {name}"
            state = "does not exist" if last is None else f"is not; its status: {last.get('status')}"
            wanted = getattr(until, "__name__", until)
            raise WaitTimeout(f"{title} {state}, after {timeout:g} s; wanted: {wanted}", last) from None
        raise AssertionError("following an object ends only with the wait")

    async def wait_for_rollout(
        self, kind: KindLike, name: str, *, namespace: str = "", timeout: float = 300.0
    ) -> Object:
        """Return a Deployment, StatefulSet or DaemonSet when all of its pods are new and available.

        Raise WaitTimeout after `timeout` seconds, and RolloutFailed if a Deployment has exceeded its progress deadline.
        """
        known = kind_from(kind)
        check = _ROLLOUTS.get(known.name)
        if check is None:
            raise ValueError(f"a {known.name} has no roll-out; there are {', '.join(_ROLLOUTS)}")
        last: Object | None = None
        missing = "it does not exist"
        try:
            async with _limit(self.clock, timeout), aclosing(_states(self, known, name, namespace)) as states:
                async for last in states:
                    missing = check(last) if last is not None else "it does not exist"
                    if last is not None and not missing:
                        return last
        except TimeoutError:
            raise WaitTimeout(f"{known.name} {name} is not rolled out after {timeout:g} s: {missing}", last) from None
        raise AssertionError("following an object ends only with the wait")

    async def restart(self, kind: KindLike, name: str, *, namespace: str = "") -> Object:
        """Replace all pods of a Deployment, StatefulSet or DaemonSet, as `kubectl rollout restart` does."""
        annotations = {_RESTARTED: to_rfc3339(self.clock.now())}
        patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        return await self.patch(kind_from(kind), name, patch, namespace=namespace)


async def _states(
    client: ObjectWaits, kind: KindLike, name: str, namespace: str
) -> AsyncGenerator[Object | None, None]:
    """Yield the object at first and at each change; None while it does not exist."""
    exists = False
    where = namespace or client.namespace
    followed = client.follow(kind_from(kind), namespace=where, fields=f"metadata.name={name}")
    async with aclosing(followed):
        async for event in followed:
            if isinstance(event, Event) and event.type != "BOOKMARK":
                exists = event.type != "DELETED"
                yield event.snapshot.object if exists else None
            elif isinstance(event, Synced) and not exists:
                yield None
            elif isinstance(event, FollowError) and isinstance(event.error, errors.Forbidden | errors.Unauthorized):
                raise event.error


def _parse(until: str) -> Callable[[Object], bool]:
    if until in ("create", "delete"):
        return lambda _: True
    if match := _CONDITION.fullmatch(until):
        wanted = (match["type"].lower(), (match["status"] or "True").lower())
        return lambda obj: any(
            (str(state.get("type")).lower(), str(state.get("status")).lower()) == wanted
            for state in (obj.get("status") or {}).get("conditions") or ()
        )
    if match := _JSON_PATH.fullmatch(until):
        find, value = compile_path(match["path"][1:-1]), match["value"]
        if value is None:
            return lambda obj: bool(find(obj))
        return lambda obj: value in map(text_of, find(obj))
    raise ValueError(f"{until!r} is nothing to wait for; write {_FORMS}, or give a function of the object")


@asynccontextmanager
async def _limit(clock: AlarmClock, seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds of the clock, which may be that of a test."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        alarm = clock.call_later(seconds, lambda: limit.reschedule(loop.time()))
        try:
            yield
        finally:
            alarm.cancel()


def _missing_of_deployment(obj: Object) -> str:
    """Return why a roll-out is not complete; empty if it is."""
    spec, status = obj["spec"], obj.get("status") or {}
    if _is_unobserved(obj):
        return "its change has not been seen"
    for state in status.get("conditions") or ():
        if state.get("type") == "Progressing" and state.get("reason") == "ProgressDeadlineExceeded":
            raise RolloutFailed(f"Deployment {obj['metadata']['name']} exceeded its progress deadline")
    wanted, updated = spec.get("replicas", 1), status.get("updatedReplicas", 0)
    if updated < wanted:
        return f"{updated} of {wanted} new replicas are updated"
    if status.get("replicas", 0) > updated:
        return f"{status['replicas'] - updated} old replicas are not gone"
    available = status.get("availableReplicas", 0)
    return f"{available} of {updated} updated replicas are available" if available < updated else ""


def _missing_of_stateful_set(obj: Object) -> str:
    """Return why a roll-out is not complete; empty if it is."""
    spec, status = obj["spec"], obj.get("status") or {}
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return ""  # Its pods are replaced when users delete them.
    if _is_unobserved(obj):
        return "its change has not been seen"
    wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    if ready < wanted:
        return f"{ready} of {wanted} pods are ready"
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    updated = status.get("updatedReplicas", 0)
    if partition:
        return f"{updated} of {wanted - partition} pods are updated" if updated < wanted - partition else ""
    if status.get("updateRevision") != status.get("currentRevision"):
        return f"{updated} of {wanted} pods are updated"
    return ""


def _missing_of_daemon_set(obj: Object) -> str:
    """Return why a roll-out is not complete; empty if it is."""
    status = obj.get("status") or {}
    if (obj["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") != "RollingUpdate":
        return ""
    if _is_unobserved(obj):
        return "its change has not been seen"
    wanted, updated = status.get("desiredNumberScheduled", 0), status.get("updatedNumberScheduled", 0)
    if updated < wanted:
        return f"{updated} of {wanted} pods are updated"
    available = status.get("numberAvailable", 0)
    return f"{available} of {wanted} updated pods are available" if available < wanted else ""


def _is_unobserved(obj: Object) -> bool:
    return bool((obj.get("status") or {}).get("observedGeneration", 0) < obj["metadata"].get("generation", 1))


_ROLLOUTS: dict[str, Callable[[Object], str]] = {
    "Deployment": _missing_of_deployment,
    "StatefulSet": _missing_of_stateful_set,
    "DaemonSet": _missing_of_daemon_set,
}
