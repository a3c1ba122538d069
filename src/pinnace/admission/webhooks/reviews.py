"""AdmissionReview requests, and the meaning of their responses."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from pinnace.admission.rules import request_namespace
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.model.webhooks import ADMISSION_RESPONSE, UnreadableValue, check_review, go_word
from pinnace.model.write_review import Review
from pinnace.schema.golang.json_errors import error_for

GROUP = "admission.k8s.io"


class InvalidAnswer(ValueError):
    """The webhook has said something, and it means nothing."""


class UnreadableAnswer(InvalidAnswer):
    """The answer does not fit the types of a review, which Go notices while it reads the answer."""


class UnusablePatch(InvalidAnswer):
    """The answer is valid, but its patch is none."""


class Denied(errors.ApiError):
    """The webhook's own refusal, with the status that it has chosen."""

    def __init__(self, webhook: str, result: Mapping[str, Any]) -> None:
        denied = f'admission webhook "{webhook}" denied the request'
        why = result.get("message") or result.get("reason")
        super().__init__(f"{denied}: {why}" if why else f"{denied} without explanation")
        code = result.get("code")
        # The webhook chooses the code, which is a property of the class elsewhere.
        self.__dict__["code"] = _http_code(code) if isinstance(code, int) else 400
        self.__dict__["reason"] = str(result.get("reason") or "")
        self.details.update(result.get("details") or {})
        self.retry_after = int(self.details.get("retryAfterSeconds") or 0)


def _http_code(code: int) -> int:
    """Return the code of the answer: never a success, and 500 for a number that no status line can have."""
    return 400 if code < 400 else 500 if code > 999 else code


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    allowed: bool
    result: Mapping[str, Any]
    patch: Any
    """The operations of a JSON patch, or None."""
    warnings: tuple[str, ...]
    audit: Mapping[str, str]


def request_of(review: Review, target: Resource, new: Object | None, old: Object | None, *, uid: str) -> Object:
    """Return the request as webhooks and policies see it; the objects are in the target's version."""
    user, resource = review.user, review.resource
    request: Object = {
        "uid": uid,
        "kind": _kind(target, review.subresource),
        "resource": _resource(target),
        "requestKind": _kind(resource, review.subresource),
        "requestResource": _resource(resource),
        "operation": review.operation,
        "userInfo": {"username": user.name},
        "object": new,
        "oldObject": old,
        "dryRun": review.is_dry_run,
        "options": _options(review),
    }
    if review.subresource:
        request["subResource"] = request["requestSubResource"] = review.subresource
    if review.name:
        request["name"] = review.name
    if namespace := request_namespace(review):
        request["namespace"] = namespace
    if user.uid:
        request["userInfo"]["uid"] = user.uid
    if user.groups:
        request["userInfo"]["groups"] = list(user.groups)
    if user.extra:
        request["userInfo"]["extra"] = {key: list(values) for key, values in user.extra.items()}
    return request


_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


def _options(review: Review) -> Object | None:
    kind = _OPTIONS.get(review.operation)
    return {**review.options, "kind": kind, "apiVersion": "meta.k8s.io/v1"} if kind else None


def _kind(resource: Resource, subresource: str) -> Object:
    kind = resource.kind
    if subresource and (below := resource.subresource(subresource)) is not None:
        kind = below.kind
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _resource(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def read_answer(body: Any, *, uid: str, version: str, may_patch: bool) -> WebhookAnswer:
    """Parse a webhook's answer. Raise InvalidAnswer, in Kubernetes' words."""
    if not isinstance(body, dict):
        raise InvalidAnswer("webhook response was absent")
    try:
        check_review(body, GROUP, version, "AdmissionReview", ADMISSION_RESPONSE)
    except UnreadableValue as error:
        raise UnreadableAnswer(str(error)) from None
    response = body.get("response")
    if not isinstance(response, dict):
        raise InvalidAnswer("webhook response was absent")
    patch, patch_type = _decode_patch(response.get("patch")), response.get("patchType")
    if version == "v1":
        if response.get("uid") != uid:
            raise InvalidAnswer(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
        answered = (body.get("apiVersion") or "", body.get("kind") or "")
        if answered != (f"{GROUP}/v1", "AdmissionReview"):
            raise InvalidAnswer(
                f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {answered[0]}, Kind={answered[1]}"
            )
        _check_patch(patch, patch_type, may_patch=may_patch)
    return WebhookAnswer(
        allowed=response.get("allowed") is True,
        result=response.get("status") or {},
        patch=_operations(patch, patch_type) if patch and may_patch and response.get("allowed") is True else None,
        warnings=tuple(
            warning for warning in response.get("warnings") or () if warning and not _CONTROL.search(warning)
        ),
        audit=response.get("auditAnnotations") or {},
    )


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def _check_patch(patch: bytes, patch_type: Any, *, may_patch: bool) -> None:
    if not may_patch:
        if patch:
            raise InvalidAnswer("validating webhook may not return response.patch")
        if patch_type is not None:
            raise InvalidAnswer("validating webhook may not return response.patchType")
        return
    if patch and patch_type is None:
        raise InvalidAnswer("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise InvalidAnswer("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise InvalidAnswer('webhook returned invalid response.patchType of ""')


def _decode_patch(patch: str | None) -> bytes:
    """Decode base64, which Go does while it reads the answer."""
    try:
        return base64.b64decode(patch or "", validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableAnswer(f"illegal base64 data at input byte {_first_bad_byte(patch or '')}") from None


def _first_bad_byte(text: str) -> int:
    match = _NO_BASE64.search(text)
    return match.start() if match else len(text) - len(text) % 4


_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")


def _operations(patch: bytes, patch_type: Any) -> Any:
    """Return the operations of a patch. Raise UnusablePatch."""
    try:
        operations = orjson.loads(patch)
    except orjson.JSONDecodeError:
        error = error_for(patch.decode("utf-8", "surrogateescape")) or "invalid number"
        raise UnusablePatch(f"received undecodable patch in webhook response: {error}") from None
    if operations is not None and not isinstance(operations, list):
        error = f"json: cannot unmarshal {go_word(operations)} into Go value of type jsonpatch.Patch"
        raise UnusablePatch(f"received undecodable patch in webhook response: {error}")
    if operations and patch_type not in (None, "JSONPatch"):
        raise UnusablePatch(f'unsupported patch type "{patch_type}"')
    return operations
