"""Lets an ImagePolicyWebhook decide which images run. Its answers are cached."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import orjson

from pinnace.admission.chain import WRITES
from pinnace.auth.remote import RemoteError
from pinnace.model.names import qualified_name
from pinnace.model.objects import Object
from pinnace.model.write_review import Review
from pinnace.process.clock import AlarmClock
from pinnace.process.eager_coroutines import NowOrLater

log = logging.getLogger(__name__)

_AUDIT = "imagepolicywebhook.image-policy.k8s.io/"
_EPHEMERAL = "ephemeralcontainers"
_MOST_ANSWERS = 1024
_RETRIES, _FACTOR = 5, 1.5
_TRANSIENT = (429, 500, 504)
"""The codes of answers after which the webhook is called again."""


class ImageReviewer(Protocol):
    async def post(self, document: Object, /) -> Any:
        """Return the answer to an ImageReview. Raise RemoteError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePolicy:
    """How the webhook is called, and how long its answers hold. Durations of 0 mean: not at all."""

    webhook: ImageReviewer
    allowed_remembered: timedelta = timedelta(minutes=5)
    denied_remembered: timedelta = timedelta(seconds=30)
    retry_backoff: timedelta = timedelta(milliseconds=500)
    is_allowed_on_failure: bool = False


@dataclass(frozen=True, slots=True)
class _Answer:
    is_allowed: bool
    reason: str
    annotations: dict[str, str]


class ImagePolicyWebhook:
    interests = (("", "pods", WRITES),)

    def __init__(self, policy: ImagePolicy, clock: AlarmClock) -> None:
        self._policy = policy
        self._clock = clock
        self._answers: OrderedDict[bytes, tuple[datetime, _Answer]] = OrderedDict()

    def validate(self, review: Review) -> NowOrLater[None]:
        if review.subresource not in ("", _EPHEMERAL):
            return None
        spec = _spec(review)
        key = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        known = self._answers.get(key)
        if known is None or known[0] <= self._clock.now():
            return self._ask(review, spec, key)
        self._answers.move_to_end(key)
        _obey(review, known[1])
        return None

    async def _ask(self, review: Review, spec: Object, key: bytes) -> None:
        kind = {"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1"}
        try:
            answer = _read(await self._post({**kind, "metadata": {}, "spec": spec, "status": {"allowed": False}}))
        except RemoteError as error:
            log.warning("the image policy webhook cannot be used: %s", error)
            if not self._policy.is_allowed_on_failure:
                raise review.forbidden(str(error)) from None
            review.audit[f"{_AUDIT}failed-open"] = "true"
            return
        self._remember(key, answer)
        _obey(review, answer)

    async def _post(self, document: Object) -> Any:
        """Send the review, again after failures that pass. Raise RemoteError."""
        pause = self._policy.retry_backoff.total_seconds()
        for _ in range(_RETRIES - 1):
            try:
                return await self._policy.webhook.post(document)
            except RemoteError as error:
                if error.status not in _TRANSIENT:
                    raise
            await self._clock.sleep(pause)
            pause *= _FACTOR
        return await self._policy.webhook.post(document)

    def _remember(self, key: bytes, answer: _Answer) -> None:
        policy = self._policy
        lasts = policy.allowed_remembered if answer.is_allowed else policy.denied_remembered
        self._answers.pop(key, None)
        if not lasts:
            return
        self._answers[key] = (self._clock.now() + lasts, answer)
        if len(self._answers) > _MOST_ANSWERS:
            self._answers.popitem(last=False)


def _spec(review: Review) -> Object:
    pod = review.changed
    images = [{"image": image} if image else {} for image in _images(pod["spec"], review.subresource)]
    annotations = pod["metadata"].get("annotations") or {}
    passed_on = {key: value for key, value in annotations.items() if ".image-policy.k8s.io/" in key}
    spec: Object = {"containers": images} if images else {}
    if passed_on:
        spec["annotations"] = passed_on
    return {**spec, "namespace": review.namespace}


def _images(spec: Any, subresource: str) -> Iterator[str]:
    for name in ("ephemeralContainers",) if subresource else ("containers", "initContainers"):
        for container in spec.get(name) or ():
            yield container.get("image", "")


def _read(answer: Any) -> _Answer:
    status = answer.get("status") if isinstance(answer, dict) else None
    status = {} if status is None else status
    annotations = (status.get("auditAnnotations") or {}) if isinstance(status, dict) else None
    is_allowed, reason = (
        (status.get("allowed", False), status.get("reason", "")) if annotations is not None else ("", 0)
    )
    if (
        not isinstance(is_allowed, bool)
        or not isinstance(reason, str)
        or not isinstance(annotations, dict)
        or not all(isinstance(value, str) for value in annotations.values())
    ):
        raise RemoteError("the image policy webhook did not answer with an ImageReview")
    return _Answer(is_allowed, reason, annotations)


def _obey(review: Review, answer: _Answer) -> None:
    for key, value in answer.annotations.items():
        if errors := qualified_name(_AUDIT + key):
            log.warning("the audit annotation %r of the image policy webhook is left out: %s", key, "; ".join(errors))
        else:
            review.audit[_AUDIT + key] = value
    if answer.is_allowed:
        return
    if answer.reason:
        raise review.forbidden(f"image policy webhook backend denied one or more images: {answer.reason}")
    raise review.forbidden("one or more images rejected by webhook backend")
