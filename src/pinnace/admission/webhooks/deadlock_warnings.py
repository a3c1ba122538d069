"""Warns the author of a webhook configuration that blocks the start of the webhook's own backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pinnace.admission.chain import WRITES
from pinnace.admission.rules import GROUP, Matcher, Scope
from pinnace.model.resources import Resource
from pinnace.model.typed_objects import MutatingWebhook, ValidatingWebhook
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

_NEEDED = ("pods", "services", "endpointslices")


class SelfBlockingWebhooks:
    interests = ((GROUP, "mutatingwebhookconfigurations", WRITES), (GROUP, "validatingwebhookconfigurations", WRITES))

    def __init__(self, namespaces: WatchedObjects, find: Callable[[str, str], Resource | None]) -> None:
        self._namespaces = namespaces
        self._find = find

    def validate(self, review: Review) -> None:
        for index, hook in enumerate(review.changed.get("webhooks") or ()):
            review.warnings.extend(self._warnings(hook, f"webhooks[{index}]"))

    def _warnings(self, hook: MutatingWebhook | ValidatingWebhook, path: str) -> Iterator[str]:
        service: Any = (hook.get("clientConfig") or {}).get("service")
        if service is None or hook.get("failurePolicy", "Fail") == "Ignore" or hook.get("matchConditions"):
            return
        matcher = Matcher.read(hook)
        namespace = service.get("namespace", "")
        stored = self._namespaces.get(namespace)
        labels = (stored or {"metadata": {}})["metadata"].get("labels") or {"kubernetes.io/metadata.name": namespace}
        if not matcher.namespaces.matches(labels) or not matcher.objects.matches_everything:
            return
        blocked = [name for name in _NEEDED if self._is_blocked(matcher, name)]
        if blocked:
            yield (
                f'{path}: "{hook.get("name", "")}" refuses {", ".join(blocked)} in the namespace "{namespace}" of its '
                f'own service "{service.get("name", "")}" whenever that does not answer, so that it cannot come back; '
                "leave that namespace out with namespaceSelector, or set failurePolicy: Ignore"
            )

    def _is_blocked(self, matcher: Matcher, plural: str) -> bool:
        resource = self._find("discovery.k8s.io" if plural == "endpointslices" else "", plural)
        return resource is not None and matcher.target(Scope(resource, "", "CREATE"), lambda resource_: ()) is not None
