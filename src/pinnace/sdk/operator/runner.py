"""Runs an operator: its CRDs installed, its functions as controllers over shared watches, its webhooks reachable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.mapping import KindLike, kind_from
from pinnace.client.transport import ConnectionLost
from pinnace.client.typed import typed
from pinnace.model import errors
from pinnace.model.exposition import Labels
from pinnace.model.objects import Key, Kind, Object, kind_of
from pinnace.reconcile.controller import Controller, Permanent, Result
from pinnace.reconcile.finalizers import ensure_finalizer, has_finalizer, is_being_deleted, remove_finalizer
from pinnace.reconcile.leader import LeaderElection
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.metrics import REQUESTS
from pinnace.sdk.api.registration import Registration
from pinnace.sdk.operator.calls import called
from pinnace.sdk.operator.change_reports import report_controller
from pinnace.sdk.operator.context import Context
from pinnace.sdk.operator.declarations import Loop, Timer
from pinnace.sdk.operator.installation import ServiceName, install_definitions, install_gates
from pinnace.sdk.operator.permissions import READ, missing, rule_for
from pinnace.sdk.operator.statuses import status_changes, status_of, status_said
from pinnace.sdk.operator.webhook_restore import hand_back, predecessors

if TYPE_CHECKING:
    from pinnace.sdk.operator.operator import Operator
    from pinnace.sdk.operator.webhook_server import Webhooks

Handler = Callable[..., Any]

_log = logging.getLogger(__name__)
_REVIEW = "authorization.k8s.io/v1"


@asynccontextmanager
async def running(
    operator: Operator,
    client: Client,
    *,
    install: bool = True,
    leader_election: bool = False,
    webhook_host: str = "127.0.0.1",
    webhook_port: int = 0,
    webhook_service: str = "",
    metrics_port: int | None = None,
) -> AsyncIterator[Manager]:
    """An operator at work, from when its caches are full to a clean stop.

    `webhook_service` is the Service, as namespace/name or namespace/name:port, by which the server reaches the
    webhooks within a cluster; without it they are reached at `webhook_host` itself.
    """
    async with AsyncExitStack() as stack:
        leader = LeaderElection(client, operator.name) if leader_election else None
        manager = Manager(client, name=operator.name, leader=leader)
        manager.metrics.counted(REQUESTS, partial(_requests_of, client))
        webhooks: Webhooks | None = None
        service = ServiceName.parse(webhook_service) if webhook_service else None
        is_told = install or service is not None
        registration = Registration(client, operator.served_kinds, operator.name)
        if operator.is_called:
            from pinnace.sdk.operator.webhook_server import webhooks_listening  # noqa: PLC0415 - aiohttp takes long to import

            webhooks = await stack.enter_async_context(
                webhooks_listening(
                    operator,
                    client,
                    manager.metrics,
                    host=webhook_host,
                    port=webhook_port,
                    service=service,
                    also_named=[registration.host_name] if operator.served_kinds else [],
                )
            )
            if is_told and service is None:
                # Nobody will answer at this address any more: left there, it would stop every write.
                before = await predecessors(client, operator)
                stack.push_async_callback(hand_back, client, operator, before)
                if operator.served_kinds:
                    await registration.remember()
                    stack.push_async_callback(registration.hand_back)
        if is_told:
            reached = webhooks.reached if webhooks is not None else None
            await install_definitions(client, operator, reached, only_converted=not install)
        if is_told and webhooks is not None:
            await install_gates(client, operator, webhooks.reached)
            await registration.announce(webhooks.reached)
            if service is None:
                await registration.available()  # Within a cluster it waits for us: until we are ready, none leads here.
        for controller in controllers_of(operator, manager):
            manager.add(controller)
        if metrics_port is not None:
            from pinnace.sdk.operator.metrics_server import metrics_listening  # noqa: PLC0415 - aiohttp takes long to import

            await stack.enter_async_context(metrics_listening(manager, metrics_port))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        background = [group.create_task(_check_permissions(operator, client, manager))]
        if is_told and webhooks is not None:
            background.append(group.create_task(webhooks.keep_fresh(partial(_trust, client, operator, registration))))
        stack.callback(lambda: [task.cancel() for task in background])
        yield await stack.enter_async_context(manager.running())


def _requests_of(client: Client) -> list[tuple[Labels, float]]:
    return [
        ((("code", code), ("host", client.host), ("method", method)), count)
        for (method, code), count in client.answers.items()
    ]


async def _trust(client: Client, operator: Operator, registration: Registration, reached: Object) -> None:
    """Make the server believe webhooks and APIs that show another certificate from now on."""
    await install_definitions(client, operator, reached, only_converted=True)
    await install_gates(client, operator, reached)
    await registration.announce(reached)


def controllers_of(operator: Operator, manager: Manager) -> list[Controller]:
    """One controller for each function, and one for each kind that is only cleaned up after."""
    declared = operator.declared
    for index in declared.indexes:
        manager.cache(kind_from(index.kind)).add_index(index.name, index.function)
    cleanups = {kind_from(kind): (kind, handler) for kind, handler in declared.cleanups}
    controllers = []
    names: set[str] = set()
    for loop in declared.loops:
        # The finalizer is the first loop's: two controllers would remove it twice.
        _, cleanup = cleanups.pop(kind_from(loop.kind), (None, None))
        controllers.append(_loop_controller(operator, manager, loop, cleanup, _name(operator, loop.kind, names)))
    for kind, cleanup in cleanups.values():
        work = _Work(operator, manager, kind, None, cleanup)
        name = _name(operator, kind, names)
        controllers.append(
            Controller(name, work.reconcile, workers=4).for_(kind_from(kind), namespace=operator.namespace)
        )
    controllers += [_timer_controller(operator, manager, timer, names) for timer in declared.timers]
    for report in declared.reports:
        name = _name(operator, report.kind, names, suffix="changes")
        controllers.append(report_controller(name, manager, report, namespace=operator.namespace))
    return controllers


def _loop_controller(
    operator: Operator, manager: Manager, loop: Loop, cleanup: Handler | None, name: str
) -> Controller:
    work = _Work(operator, manager, loop.kind, loop.handler, cleanup, labels=loop.labels, fields=loop.fields)
    controller = Controller(name, work.reconcile, workers=loop.workers, resync=loop.resync)
    controller.for_(kind_from(loop.kind), namespace=loop.namespace, labels=loop.labels, fields=loop.fields)
    for kind in loop.owns:
        controller.owns(kind_from(kind), namespace=loop.namespace)
    for kind, to_keys in loop.watches:
        controller.watches(kind_from(kind), to_keys, namespace=loop.namespace)
    return controller


def _timer_controller(operator: Operator, manager: Manager, timer: Timer, names: set[str]) -> Controller:
    work = _Work(operator, manager, timer.kind, timer.handler, None, labels=timer.labels, every=timer.seconds)
    name = _name(operator, timer.kind, names, suffix="timer")
    return Controller(name, work.reconcile, workers=4).for_(
        kind_from(timer.kind),
        namespace=operator.namespace,
        labels=timer.labels,
        when=lambda old, new: old is None,  # From then on it is the timer that asks.
    )


def _name(operator: Operator, kind: KindLike, taken: set[str], *, suffix: str = "") -> str:
    name = "-".join(part for part in (operator.name, kind_from(kind).name.lower(), suffix) if part)
    number = 1
    while (unique := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    taken.add(unique)
    return unique


class _ObjectLog(logging.LoggerAdapter[logging.Logger]):
    """Says with every message which object it is about."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        return f"{(self.extra or {}).get('object')}: {msg}", kwargs


class _Work:
    """Calls one handler for one key: reads the object, keeps the finalizer, writes the status back."""

    def __init__(
        self,
        operator: Operator,
        manager: Manager,
        kind: KindLike,
        handler: Handler | None,
        cleanup: Handler | None,
        *,
        labels: str = "",
        fields: str = "",
        every: float = 0.0,
    ) -> None:
        self._operator = operator
        self._manager = manager
        self._kind = kind
        self._handler = handler
        self._cleanup = cleanup
        self._every = every
        # Every function waits for the finalizer, not only the one that cleans up: what it does must be cleaned up, too.
        self._is_kept = any(kind_from(known) == kind_from(kind) for known, _ in operator.declared.cleanups)
        self._finalizer = _finalizer(operator.name, kind_from(kind))
        self._cache = manager.cache(kind_from(kind), namespace=operator.namespace, labels=labels, fields=fields)

    async def reconcile(self, key: Key) -> Result | None:
        obj = self._cache.get(key)
        if obj is None:
            return None
        try:
            return await self._bring_about(obj)
        except errors.Forbidden as refusal:
            told = missing(refusal, self._operator.permissions())
            if told is None:
                raise
            raise told from refusal

    async def _bring_about(self, obj: Object) -> Result | None:
        client = self._manager.client
        if is_being_deleted(obj):
            if self._cleanup is not None and has_finalizer(obj, self._finalizer):
                await self._call(self._cleanup, obj)
                latest = self._cache.get(Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])) or obj
                await remove_finalizer(client, latest, self._finalizer)
            return None
        if self._is_kept:
            obj = await ensure_finalizer(client, obj, self._finalizer)
        if self._handler is None:
            return None
        after = await self._call(self._handler, obj) or self._every
        return Result(requeue_after=after) if after else None

    async def _call(self, handler: Handler, obj: Object) -> float:
        """Call a handler and store what it says in the status, even if it fails. When to look again."""
        typed = self._typed(obj)
        # A plain object is changed in place: what is stored must be known before the handler sees it.
        stored, before = status_of(obj), status_of(typed)
        key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        log = _ObjectLog(logging.getLogger(self._operator.name), {"object": str(key)})
        ctx = Context(self._manager, obj, typed, operator=self._operator.name, log=log)
        try:
            result = await called(handler, typed, ctx)
        except Exception:
            try:
                await self._store_status(obj, typed, stored, before)
            except errors.ApiError as refusal:
                log.warning("its status was not stored: %s", refusal)  # The handler's own failure is the one to tell.
            raise
        await self._store_status(obj, typed, stored, before)
        if isinstance(result, Result):
            return result.requeue_after
        return ctx.requeue_after

    def _typed(self, obj: Object) -> Any:
        try:
            return typed(self._kind, obj)
        except ValueError as error:  # Pydantic's and msgspec's are.
            # It was stored by another schema. Nothing will be different before somebody changes it.
            name = getattr(self._kind, "__name__", self._kind)
            raise Permanent(f"the stored object does not fit the class {name}: {error}") from None

    async def _store_status(self, obj: Object, typed: Any, stored: Object, before: Object) -> None:
        changes = status_changes(stored, before, status_of(typed), status_said(typed))
        if not changes:
            return
        metadata = obj["metadata"]
        # With the uid: the status of an object must not end up on another that has taken its name.
        patch = {"metadata": {"uid": metadata["uid"]}, "status": changes}
        try:
            await self._manager.client.patch(
                kind_of(obj),
                metadata["name"],
                patch,
                namespace=metadata.get("namespace", ""),
                subresource="status",
                field_manager=self._operator.name,
            )
        except errors.NotFound:
            return  # It went while the handler worked.


def _finalizer(operator: str, kind: Kind) -> str:
    return f"{kind.group}/{operator}" if kind.group else f"{operator}/finalizer"


async def _check_permissions(operator: Operator, client: Client, manager: Manager) -> None:
    """Say at once which rules are missing for what is watched: a watch that is refused only looks like silence."""
    for informer in manager.informers:
        kind = informer.scope.kind
        try:
            served = await client.kinds.find(kind)
            for verb in ("list", "watch"):
                asked = {"group": kind.group, "resource": served.plural, "verb": verb}
                if informer.scope.namespace:
                    asked["namespace"] = informer.scope.namespace
                review: Object = {"apiVersion": _REVIEW, "kind": "SelfSubjectAccessReview"}
                review["spec"] = {"resourceAttributes": asked}
                answer = await client.create(review)
                if not answer["status"]["allowed"]:
                    rule = rule_for(kind.group, served.plural, READ, operator.permissions())
                    _log.error("%s may not %s %s; add this rule to its role: %s", operator.name, verb, kind.name, rule)
                    break
        except (errors.ApiError, ConnectionLost, NoCredentials) as error:
            _log.debug("the permissions for %s cannot be asked for: %s", kind.name, error)
