"""The namespace controller: empties a namespace that is being deleted, and reports what delays its deletion.

Pods are deleted first: the other objects of the namespace (policies, secrets, service accounts) protect or serve them.
Then all other discovered kinds follow, custom and aggregated kinds too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pinnace.client.client import Client
from pinnace.client.mapping import ServedKind
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.garbage.discovery import discover, failure_message
from pinnace.controllers.garbage.monitors import Monitors
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object
from pinnace.model.typed_objects import Namespace, NamespaceCondition
from pinnace.process.backoff import Backoff
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

FINALIZER = "kubernetes"
WORKERS = 4
GATHER_SECONDS = 1.0
"""How long to collect deletions in a namespace before its status is updated."""
UNWATCHED = Backoff(first=5.0, longest=300.0, jitter=0.0)
"""How soon to check again for objects that cannot be watched: less and less often."""

_PODS = Kind("", "v1", "Pod")
_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""By condition, the reason and message when there is no error."""


@dataclass(slots=True)
class Remains:
    """The objects left in a namespace, and the errors of its deletion."""

    objects: Counter[str] = field(default_factory=Counter)
    """The number of objects of each resource, named as in widgets.example.com; `pods.` has no group."""
    finalizers: Counter[str] = field(default_factory=Counter)
    """The number of objects that each finalizer holds."""
    undiscovered: Mapping[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    is_unwatched: bool = False
    """Objects are left that cannot be watched."""

    @property
    def is_nothing(self) -> bool:
        return not (self.objects or self.undiscovered or self.failures)


class NamespaceController:
    """Reads through `monitors`, writes through `client`."""

    def __init__(self, manager: Manager, client: Client, monitors: Monitors) -> None:
        self._client = client
        self._monitors = monitors
        self._emptying: Counter[str] = Counter()
        """The namespaces being emptied, each with the number of attempts that left unwatchable objects."""
        self.controller = Controller("namespace", self._reconcile, workers=WORKERS)
        self.controller.for_(Namespace, metadata_only=True, when=_is_leaving)
        monitors.on_change(self._changed)

    def _changed(self, kind: Kind, old: Snapshot | None, new: Snapshot | None) -> None:
        """Enqueue a namespace that is being emptied when one of its objects is gone: it may have been the last."""
        if old is None or old.key.namespace not in self._emptying:
            return
        key = Key("", old.key.namespace)
        informer = self._monitors.informer(kind)
        was_last = new is None and (informer is None or not any(informer.cache.snapshots(namespace=key.name)))
        self.controller.enqueue(key, "content", after=0.0 if was_last else GATHER_SECONDS)

    async def _reconcile(self, key: Key) -> Result | None:
        namespace = await self._client.get_or_none(Namespace, key.name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            del self._emptying[key.name]
            return None
        if FINALIZER not in (namespace["spec"].get("finalizers") or ()):
            del self._emptying[key.name]
            return None  # A finalizer of another controller holds it.
        self._emptying.setdefault(key.name, 0)
        remains = await self._empty(key.name)
        namespace = await self._tell(namespace, remains)
        if remains.failures or remains.undiscovered:
            raise ContentFailure(key.name, remains)
        if remains.objects:
            if not remains.is_unwatched:
                return None
            self._emptying[key.name] += 1
            return Result(requeue_after=UNWATCHED.delay(self._emptying[key.name]))
        await self._finalize(namespace)
        del self._emptying[key.name]
        return None

    async def _empty(self, name: str) -> Remains:
        """Delete all objects; those that are left wait for finalizers or their grace period."""
        remains = Remains()
        discovered = await discover(self._client)
        remains.undiscovered = discovered.failures
        kinds = [served for served in discovered.with_verbs("delete") if served.namespaced]
        kinds.sort(key=lambda served: served.kind != _PODS)
        for served in kinds:
            try:
                await self._delete_all(served, name, remains)
            except errors.ApiError as error:
                remains.failures.append(error.message)
            if served.kind == _PODS and remains.objects:
                break
        return remains

    async def _delete_all(self, served: ServedKind, namespace: str, remains: Remains) -> None:
        if "list" not in served.verbs:
            if "deletecollection" in served.verbs:
                await self._client.delete_collection(served.kind, namespace=namespace, propagation="Background")
            return
        try:
            if not (present := await self._list(served, namespace)):
                return
            if "deletecollection" in served.verbs:
                await self._client.delete_collection(served.kind, namespace=namespace, propagation="Background")
            else:
                for obj in present:
                    await self._delete(served, namespace, obj["metadata"]["name"])
            left = await self._list(served, namespace)
        except (errors.NoSuchPath, errors.MethodNotAllowed):
            return  # Its definition was just deleted, or discovery lists a resource that is not served.
        if left:
            remains.objects[f"{served.plural}.{served.kind.group}"] = len(left)
            remains.finalizers.update(name for obj in left for name in obj["metadata"].get("finalizers") or ())
            remains.is_unwatched |= self._monitors.informer(served.kind) is None

    async def _list(self, served: ServedKind, namespace: str) -> list[Object]:
        return await self._client.list(served.kind, namespace=namespace, metadata_only=True)

    async def _delete(self, served: ServedKind, namespace: str, name: str) -> None:
        try:
            await self._client.delete(served.kind, name, namespace=namespace, propagation="Background")
        except errors.NotFound:
            return

    async def _tell(self, namespace: Namespace, remains: Remains) -> Namespace:
        """Write into the namespace's status what is left of it and why."""
        if remains.is_nothing and not (namespace.get("status") or {}).get("conditions"):
            return namespace  # It is deleted at once: no client would read the status.
        if with_conditions(namespace, remains, self._client.clock):
            return await self._client.update_status(namespace)
        return namespace

    async def _finalize(self, namespace: Namespace) -> None:
        kept = [name for name in namespace["spec"].get("finalizers") or () if name != FINALIZER]
        namespace["spec"]["finalizers"] = kept
        try:
            await self._client.update(namespace, subresource="finalize")
        except errors.NotFound:
            return


class ContentFailure(Exception):
    """Some objects could not be deleted or found. The manager tries again."""

    def __init__(self, namespace: str, remains: Remains) -> None:
        why = list(remains.failures)
        if remains.undiscovered:
            why.insert(0, failure_message(remains.undiscovered))
        super().__init__(f"namespace {namespace} cannot be emptied: {'; '.join(why)}")


def with_conditions(namespace: Namespace, remains: Remains, clock: Clock) -> bool:
    """Write what remains into the conditions of `namespace`; return whether a condition changed."""
    status = namespace.setdefault("status", {})
    conditions = status.setdefault("conditions", [])
    known = {condition["type"]: condition for condition in conditions}
    failures = _failures(remains)
    is_news = bool(status.get("phase") != "Terminating")
    status["phase"] = "Terminating"
    for type, fine in _FINE.items():
        reason, message = failures.get(type, fine)
        wanted: NamespaceCondition = {"type": type, "status": "True" if type in failures else "False"}
        wanted |= {"reason": reason, "message": message}
        present = known.get(type)
        if present is None:
            conditions.append({**wanted, "lastTransitionTime": to_rfc3339(clock.now())})
            is_news = True
        elif any(present.get(name) != value for name, value in wanted.items()):
            if present.get("status") != wanted["status"]:
                present["lastTransitionTime"] = to_rfc3339(clock.now())
            present.update(wanted)
            is_news = True
    return is_news


def _failures(remains: Remains) -> dict[str, tuple[str, str]]:
    """Return reason and message by condition, in Kubernetes' words: clients show them, and match on them."""
    failures: dict[str, tuple[str, str]] = {}
    if remains.undiscovered:
        message = (
            f"Discovery failed for some groups, {len(remains.undiscovered)} failing: "
            f"{failure_message(remains.undiscovered)}"
        )
        failures["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", message)
    if remains.failures:
        each = ", ".join(sorted(remains.failures))
        message = f"Failed to delete all resource types, {len(remains.failures)} remaining: {each}"
        failures["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    if remains.objects:
        each = ", ".join(sorted(f"{name} has {count} resource instances" for name, count in remains.objects.items()))
        failures["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {each}")
    if remains.finalizers:
        each = ", ".join(sorted(f"{name} in {count} resource instances" for name, count in remains.finalizers.items()))
        message = f"Some content in the namespace has finalizers remaining: {each}"
        failures["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return failures


def _is_leaving(old: Namespace | None, new: Namespace | None) -> bool:
    return new is not None and "deletionTimestamp" in new["metadata"]
