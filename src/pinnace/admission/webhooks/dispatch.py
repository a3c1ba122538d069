"""Calls the configured admission webhooks: mutating ones one by one, validating ones all at once.

The webhooks of a resource, subresource and operation are looked up: a write that no rule selects pays for one lookup.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson

from pinnace.admission.cel_executor import CelExecutor
from pinnace.admission.chain import PATCH_NOTE, AdmissionPlugin
from pinnace.admission.expressions import (
    Condition,
    ConditionFailed,
    Oracles,
    all_hold,
    bindings,
    read_conditions,
)
from pinnace.admission.metrics import ADMIT, VALIDATING, AdmissionMetrics
from pinnace.admission.rules import (
    Equivalents,
    Match,
    Matcher,
    MatchTable,
    convert_for_review,
    is_message,
    is_static,
    put_back,
    static_first,
)
from pinnace.admission.webhooks.reviews import (
    GROUP,
    Denied,
    InvalidAnswer,
    UnreadableAnswer,
    UnusablePatch,
    WebhookAnswer,
    read_answer,
    request_of,
)
from pinnace.model import errors
from pinnace.model.objects import Object, new_uid
from pinnace.model.patches import json_and_merge
from pinnace.model.resources import Resource
from pinnace.model.typed_objects import MutatingWebhook, ValidatingWebhook
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.webhooks import UnusableWebhook, WebhookCallError, WebhookClient, WebhookEndpoint
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.schema.golang.decode import DecodeError

MUTATION_NOTE = "mutation.webhook.admission.k8s.io/"
VALIDATION_NOTE = "validating.webhook.admission.k8s.io/"
"""Prefixes of audit annotations."""
USER_AGENT = "kube-apiserver-admission"
_WITHOUT_SIDE_EFFECTS = frozenset(("None", "NoneOnDryRun"))
Read = Callable[[Resource, Object], None]
"""Read an object as one of its kind, in place: unknown fields go, wrong types raise DecodeError."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of a configuration, compiled."""

    name: str
    configuration: str
    place: int
    """Its number among all that there are, in the order in which they are asked."""
    uid: str
    matcher: Matcher
    conditions: tuple[Condition, ...]
    client_config: Mapping[str, Any]
    fails_closed: bool
    seconds: int
    has_side_effects: bool
    is_reinvoked: bool
    review_version: str
    is_static: bool

    @classmethod
    def read(cls, configuration: Object, webhook: MutatingWebhook | ValidatingWebhook, index: int, place: int) -> Hook:
        offered = webhook.get("admissionReviewVersions") or ()
        source = "manifest/" if is_static(configuration) else ""
        return cls(
            name=webhook.get("name", ""),
            configuration=configuration["metadata"]["name"],
            place=place,
            uid=f"{source}{configuration['metadata']['name']}/{webhook.get('name', '')}/{index}",
            matcher=Matcher.read(webhook),
            conditions=read_conditions(webhook.get("matchConditions")),
            client_config=webhook.get("clientConfig") or {},
            fails_closed=webhook.get("failurePolicy", "Fail") != "Ignore",
            seconds=int(webhook.get("timeoutSeconds") or 10),
            has_side_effects=webhook.get("sideEffects") not in _WITHOUT_SIDE_EFFECTS,
            is_reinvoked=cast("MutatingWebhook", webhook).get("reinvocationPolicy") == "IfNeeded",
            review_version=next((version for version in offered if version in ("v1", "v1beta1")), "v1"),
            is_static=is_static(configuration),
        )


class HookTable(MatchTable[Hook]):
    """The webhooks of all configurations of one kind."""

    def __init__(self, configurations: WatchedObjects, equivalents: Equivalents, revision: Callable[[], int]) -> None:
        super().__init__(configurations, equivalents=equivalents, revision=revision)
        self._configurations = configurations

    def _read(self) -> Iterator[Hook]:
        hooks = (
            (configuration, hook, index)
            for _, configuration in sorted(self._configurations.items(), key=static_first)
            for index, hook in enumerate(configuration.get("webhooks") or ())
        )
        return (Hook.read(*hook, place) for place, hook in enumerate(hooks))

    def _matcher_of(self, entry: Hook) -> Matcher:
        return entry.matcher

    def _is_static(self, entry: Hook) -> bool:
        return entry.is_static


class _Webhooks(AdmissionPlugin):
    """Shared by mutating and validating webhooks: selection, request and response."""

    _type = ADMIT

    def __init__(
        self,
        table: HookTable,
        client: WebhookClient,
        namespaces: WatchedObjects,
        oracles: Oracles,
        executor: CelExecutor,
        metrics: AdmissionMetrics,
    ) -> None:
        self._table = table
        self._client = client
        self._namespaces = namespaces
        self._oracles = oracles
        self._executor = executor
        self._metrics = metrics

    def is_idle(self) -> bool:
        return self._table.is_empty()

    def on_configured(self, changed: Callable[[], None]) -> None:
        self._table.on_change(changed)

    def reviews_unstored(self, resource: Resource) -> bool:
        return bool(self._table.matching(resource, "", "CREATE"))

    async def _question(self, review: Review, hook: Hook, target: Resource) -> Object | None:
        """Return the review to send; None if this webhook is not called."""
        if not hook.matcher.selects(review, self._namespaces):
            return None
        new = await convert_for_review(review.new, review.resource, target)
        old = await convert_for_review(review.old, review.resource, target)
        request = request_of(review, target, new, old, uid=new_uid())
        return request if not hook.conditions or await self._is_selected(review, hook, request) else None

    async def _is_selected(self, review: Review, hook: Hook, request: Object) -> bool:
        """Whether the conditions of a webhook hold."""

        def holding(oracles: Oracles, inline_budget: int | None) -> bool:
            variables = bindings(review, oracles, request=request)
            return all_hold(hook.conditions, variables, fails_closed=hook.fails_closed, inline_budget=inline_budget)

        try:
            return await self._executor.evaluate(review, f"webhook/{hook.place}", hook, holding, self._oracles)
        except ConditionFailed as err:
            raise review.forbidden(str(err)) from None

    async def _ask(
        self, review: Review, hook: Hook, request: Object, *, may_patch: bool, note: str
    ) -> WebhookAnswer | None:
        """Return the webhook's answer if it allows the write; None for an ignored failure, recorded under `note`."""
        if review.is_dry_run and hook.has_side_effects:
            raise errors.BadRequest(f'admission webhook "{hook.name}" does not support dry run')
        version = hook.review_version
        body = {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{version}", "request": request}
        began = time.perf_counter()
        try:
            try:
                response = await self._client.post(
                    WebhookEndpoint.read(hook.client_config), body, seconds=hook.seconds, agent=USER_AGENT
                )
            except UnusableWebhook as error:
                raise InvalidAnswer(f"could not get REST client: {error}") from None
            except WebhookCallError as error:
                raise InvalidAnswer(f"failed to call webhook: {error}") from None
            try:
                answer = read_answer(response, uid=request["uid"], version=version, may_patch=may_patch)
            except UnreadableAnswer as error:
                raise InvalidAnswer(f"failed to call webhook: {error}") from None
            except UnusablePatch:
                raise
            except InvalidAnswer as error:
                raise InvalidAnswer(f"received invalid webhook response: {error}") from None
        except InvalidAnswer as error:
            self._observe(review, hook, began, 503, "calling_webhook_error", is_rejected=hook.fails_closed)
            if hook.fails_closed:
                raise errors.InternalError(f'failed calling webhook "{hook.name}": {error}') from None
            review.audit[f"failed-open.{note}"] = hook.name
            return None
        review.warnings.extend(answer.warnings)
        for key, value in answer.audit.items():
            review.audit[f"{hook.name}/{key}"] = value
        if not answer.allowed:
            denial = Denied(hook.name, answer.result)
            self._observe(review, hook, began, denial.code, "no_error", is_rejected=True)
            raise denial
        self._observe(review, hook, began, 200, "", is_rejected=False)
        return answer

    def _observe(
        self, review: Review, hook: Hook, began: float, code: int, error_type: str, *, is_rejected: bool
    ) -> None:
        labels = (hook.name, review.operation, self._type)
        seconds = time.perf_counter() - began
        self._metrics.observe_webhook(labels, seconds, code=code, error_type=error_type, is_rejected=is_rejected)


class MutatingWebhooks(_Webhooks):
    """One after the other, each sees what those before it have made of the object."""

    def __init__(
        self,
        table: HookTable,
        client: WebhookClient,
        namespaces: WatchedObjects,
        oracles: Oracles,
        executor: CelExecutor,
        metrics: AdmissionMetrics,
        read: Read,
    ) -> None:
        super().__init__(table, client, namespaces, oracles, executor, metrics)
        self._read = read

    def mutate(self, review: Review) -> NowOrLater[None]:
        matching = self._table.matching(review.resource, review.subresource, review.operation)
        return self._mutate(review, matching) if matching else None

    async def _mutate(self, review: Review, matching: list[Match[Hook]]) -> None:
        reinvocation = review.reinvocation
        if reinvocation.is_second and reinvocation.last_seen != _encode_sorted(review.new):
            reinvocation.require_previous()  # A built-in gate has changed what the webhooks had left.
        for hook, target in matching:
            if reinvocation.is_second and hook.uid not in reinvocation.due:
                continue
            request = await self._question(review, hook, target)
            if request is None:
                continue
            note = f"round_{int(reinvocation.is_second)}_index_{hook.place}"
            _note_mutation(review, hook, note, mutated=False)
            answer = await self._ask(review, hook, request, may_patch=True, note=f"{MUTATION_NOTE}{note}")
            if answer is not None and answer.patch:
                _note_patch(review, hook, note, answer.patch)
                if await self._patch(review, hook, target, request, answer.patch):
                    _note_mutation(review, hook, note, mutated=True)
                    reinvocation.require_previous()
                    reinvocation.is_wanted = True
            if hook.is_reinvoked:
                reinvocation.previous.add(hook.uid)
        reinvocation.last_seen = _encode_sorted(review.new)

    async def _patch(self, review: Review, hook: Hook, target: Resource, request: Object, patch: Any) -> bool:
        """Whether anything is other than before."""
        obj = request["object"]
        if obj is None:
            raise errors.InternalError(
                f'admission webhook "{hook.name}" attempted to modify the object, '
                "which is not supported for this operation"
            )
        try:
            patched = json_and_merge.json_patch(obj, patch)
            if not isinstance(patched, dict):
                raise DecodeError("the patch leaves something that is no object")
            _check_kind(obj, patched)
            if not is_message(obj, target):
                patched.setdefault("metadata", {})
                self._read(target, patched)
        except json_and_merge.PatchRefused as error:
            raise errors.InternalError(error.why) from None
        except (errors.ApiError, DecodeError) as error:
            raise errors.InternalError(str(error)) from None
        if patched == obj:
            return False
        if is_message(obj, target):
            await put_back(patched, review, target)
            return True
        _keep_identity(review, patched)
        await put_back(patched, review, target)
        review.resource.strategy.default(review.changed)
        return True


class ValidatingWebhooks(_Webhooks):
    """All at once; the first in order that refuses is heard."""

    _type = VALIDATING

    def validate(self, review: Review) -> NowOrLater[None]:
        matching = self._table.matching(review.resource, review.subresource, review.operation)
        return self._validate(review, matching) if matching else None

    async def _validate(self, review: Review, matching: list[Match[Hook]]) -> None:
        answers: list[Awaitable[WebhookAnswer | None]] = []
        for hook, target in matching:
            request = await self._question(review, hook, target)
            if request is not None:
                note = f"{VALIDATION_NOTE}round_0_index_{len(answers)}"
                answers.append(self._ask(review, hook, request, may_patch=False, note=note))
        if len(answers) == 1:
            await answers[0]
            return
        for outcome in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome


def _note_mutation(review: Review, hook: Hook, note: str, *, mutated: bool) -> None:
    note_value = {"configuration": hook.configuration, "webhook": hook.name, "mutated": mutated}
    review.audit[f"{MUTATION_NOTE}{note}"] = orjson.dumps(note_value).decode()


def _note_patch(review: Review, hook: Hook, note: str, patch: Any) -> None:
    note_value = {"configuration": hook.configuration, "webhook": hook.name, "patch": patch, "patchType": "JSONPatch"}
    review.audit[f"{PATCH_NOTE}{note}"] = orjson.dumps(note_value).decode()


def _encode_sorted(obj: Object | None) -> bytes:
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)


def _check_kind(obj: Object, patched: Object) -> None:
    """Raise DecodeError if the patch makes another kind of the object; restore a kind that it removes."""
    for name in ("apiVersion", "kind"):
        if not patched.get(name):
            patched[name] = obj[name]
    version, kind = str(patched["apiVersion"]), str(patched["kind"])
    if (version, kind) == (obj["apiVersion"], obj["kind"]):
        return
    raise DecodeError(
        f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/api/legacyscheme/scheme.go:30"'
    )


def _keep_identity(review: Review, patched: Object) -> None:
    """Restore the identity fields of the object: a webhook may not change them."""
    metadata, before = patched["metadata"], review.changed["metadata"]
    if metadata.get("namespace") and metadata["namespace"] != before.get("namespace"):
        raise errors.BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if metadata.get("name") != before.get("name"):
        raise errors.BadRequest(
            f'a webhook may not change metadata.name from "{before.get("name", "")}" to "{metadata.get("name", "")}"'
        )
    for name in ("namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
