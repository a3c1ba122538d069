"""Converts custom objects between versions by calling the webhook of their definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from pinnace.model import errors
from pinnace.model.metadata import validate_annotation
from pinnace.model.objects import Object, kind_of, new_uid
from pinnace.model.selectors import validate_label
from pinnace.model.webhooks import (
    CONVERSION_RESPONSE,
    WebhookCallError,
    WebhookClient,
    WebhookEndpoint,
    check_review,
    go_word,
)
from pinnace.schema.golang.text import type_name
from pinnace.serving.custom.versions import Convert

TIMEOUT_SECONDS = 30.0
REVIEW_GROUP = "apiextensions.k8s.io"
_KNOWN_REVIEWS = ("v1", "v1beta1")
_SAME = (("kind", "kind"), ("name", "name"), ("namespace", "namespace"), ("uid", "UID"))
USER_AGENT = "kube-apiserver"


class ConversionFailed(errors.ApiError):
    """The webhook is down, slow or wrong. Other kinds, and objects that need no conversion, stay available."""

    code, reason = 500, ""


class ConversionWebhook:
    """Calls a definition's webhook with a ConversionReview for all objects of a request."""

    def __init__(self, webhook: Mapping[str, Any], client: WebhookClient, *, seconds: float) -> None:
        self._webhook = webhook
        self._client = client
        self._seconds = seconds
        self._endpoint: WebhookEndpoint | None = None
        offered = webhook.get("conversionReviewVersions") or ()
        self._version = next((candidate for candidate in offered if candidate in _KNOWN_REVIEWS), "")

    async def convert(self, objects: list[Object], api_version: str) -> list[Object]:
        places = [at for at, obj in enumerate(objects) if obj["apiVersion"] != api_version]
        if not places:
            return objects
        originals = [objects[at] for at in places]
        what = _describe(originals[0])
        answered = await self._ask(originals, api_version, what)
        if len(answered) != len(originals):
            raise ConversionFailed(
                f"conversion webhook for {what} returned {len(answered)} objects, expected {len(originals)}"
            )
        converted = list(objects)
        for index, (at, original, answer) in enumerate(zip(places, originals, answered, strict=True)):
            converted[at] = _check(original, answer, api_version, _Lead(what, index, is_list=len(objects) > 1))
        return converted

    async def _ask(self, objects: list[Object], api_version: str, what: str) -> list[Any]:
        uid = new_uid()
        review: Object = {
            "kind": "ConversionReview",
            "apiVersion": f"{REVIEW_GROUP}/{self._version}",
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": objects},
        }
        try:
            if not self._version:
                raise ValueError("no supported conversion review versions")
            if self._endpoint is None:
                self._endpoint = WebhookEndpoint.read(self._webhook.get("clientConfig") or {})
            answer = await self._client.post(self._endpoint, review, seconds=self._seconds, agent=USER_AGENT)
            return _response(answer, review, uid)
        except (WebhookCallError, LookupError, ValueError, TypeError) as error:
            raise ConversionFailed(f"conversion webhook for {what} failed: {error}") from None


def converter_of(definition: Object, client: WebhookClient, *, seconds: float = TIMEOUT_SECONDS) -> Convert | None:
    """Return how objects of a definition are converted; None if versions differ in their apiVersion only."""
    conversion = definition["spec"].get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    return ConversionWebhook(conversion.get("webhook") or {}, client, seconds=seconds).convert


def _describe(obj: Object) -> str:
    kind = kind_of(obj)
    return f"{kind.api_version}, Kind={kind.name}"


def _response(answer: Any, review: Object, uid: str) -> list[Any]:
    answer = answer or {}
    version = review["apiVersion"].rpartition("/")[2]
    check_review(answer, REVIEW_GROUP, version, "ConversionReview", CONVERSION_RESPONSE)
    if version == "v1":
        answered = (answer.get("apiVersion") or "", answer.get("kind") or "")
        if answered != (review["apiVersion"], "ConversionReview"):
            wanted = f"{review['apiVersion']}, Kind=ConversionReview"
            answered_version = answered[0] if "/" in answered[0] else f"/{answered[0]}"
            raise ValueError(f"expected webhook response of {wanted}, got {answered_version}, Kind={answered[1]}")
    response = answer.get("response")
    if not isinstance(response, dict):
        raise ValueError("no response provided")
    if review["apiVersion"].endswith("/v1") and response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    result = response.get("result") or {}
    status = result.get("status") or ""
    if status != "Success":
        raise ValueError(result.get("message") or f"response.result.status was '{status}', not 'Success'")
    return response.get("convertedObjects") or []


class _Lead(NamedTuple):
    """The beginning of a message about a converted object, which differs for the items of a list."""

    what: str
    at: int
    is_list: bool

    def of_object(self, why: str) -> ConversionFailed:
        noun = f"converted object at index {self.at}" if self.is_list else "object at index 0"
        return ConversionFailed(f"conversion webhook for {self.what} returned invalid {noun}: {why}")

    def of_identity(self, why: str) -> ConversionFailed:
        noun = f"converted object at index {self.at}" if self.is_list else "object"
        return ConversionFailed(f"conversion webhook for {self.what} returned invalid {noun}: {why}")

    def of_metadata(self, why: str) -> ConversionFailed:
        noun = f"metadata in object at index {self.at}" if self.is_list else "metadata"
        return ConversionFailed(f"conversion webhook for {self.what} returned invalid {noun}: {why}")

    def of_decoding(self, why: str) -> ConversionFailed:
        return self.of_object(why) if self.is_list else ConversionFailed(why)


def _check(original: Object, converted: Any, api_version: str, lead: _Lead) -> Object:
    """Return the converted object with its original metadata; a webhook may change labels and annotations only."""
    if converted is None:
        raise lead.of_decoding("unexpected end of JSON input")
    if not isinstance(converted, dict):
        why = f"json: cannot unmarshal {go_word(converted)} into Go value of type map[string]interface {{}}"
        raise lead.of_decoding(why)
    if not converted.get("kind"):
        raise lead.of_decoding(f"Object 'Kind' is missing in '{orjson.dumps(converted).decode()}'")
    if converted.get("apiVersion") != api_version:
        received = converted.get("apiVersion") or ""
        raise lead.of_object(f"invalid groupVersion (expected {api_version}, received {received})")
    if converted["kind"] != original["kind"]:
        raise lead.of_object(f"invalid kind (expected {original['kind']}, received {converted['kind']})")
    metadata, before = converted.get("metadata"), original["metadata"]
    named = metadata if isinstance(metadata, dict) else {}
    for field, noun in _SAME[1:]:
        was, now = before.get(field) or "", named.get(field) or ""
        if was != now:
            raise lead.of_identity(f"must have the same {noun}: {was} != {now}")
    restored = dict(before)
    for field in ("labels", "annotations"):
        value = named.get(field)
        if value is None:
            restored.pop(field, None)
            continue
        try:
            restored[field] = _text_map(field, value, before.get(field))
        except ValueError as err:
            raise lead.of_metadata(str(err)) from None
    return {**converted, "metadata": restored}


def _text_map(field: str, texts: Any, before: Any) -> dict[str, str]:
    if not isinstance(texts, dict):
        raise ValueError(f"invalid metadata.{field} of type {type_name(texts)} in converted object")
    for key, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"metadata.{field}[{key}] must be a string, but is {type_name(value)} in converted object")
    if texts != before:
        errs = (
            validate_label(texts, "metadata.labels")
            if field == "labels"
            else validate_annotation(texts, "metadata.annotation")
        )
        messages = [str(err) for err in errs]
        if messages:
            raise ValueError(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")
    return texts
