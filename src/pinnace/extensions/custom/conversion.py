"""Converts custom objects between versions by calling the webhook of their definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pinnace.model import errors
from pinnace.model.metadata import validate_annotation
from pinnace.model.objects import Object, kind_of, new_uid
from pinnace.model.selectors import validate_label
from pinnace.model.webhooks import WebhookCallError, WebhookClient, WebhookEndpoint

TIMEOUT_SECONDS = 30.0
REVIEW_GROUP = "apiextensions.k8s.io"
_KNOWN_REVIEWS = ("v1", "v1beta1")
_SAME = (("kind", "kind"), ("name", "name"), ("namespace", "namespace"), ("uid", "UID"))
USER_AGENT = "kube-apiserver"


class Converter(Protocol):
    async def convert(self, objects: list[Object], api_version: str) -> list[Object]:
        """Return the objects in this version, in the same order. Raise ApiError if any of them cannot be converted."""


class ConversionFailed(errors.ApiError):
    """The webhook is down, slow or wrong. Other kinds, and objects that need no conversion, are not touched by it."""

    code, reason = 500, ""


class ConversionWebhook:
    """Asks a definition's webhook with ConversionReviews, one for all objects of a request."""

    def __init__(self, webhook: Mapping[str, Any], client: WebhookClient, *, seconds: float) -> None:
        self._webhook = webhook
        self._client = client
        self._seconds = seconds
        self._endpoint: WebhookEndpoint | None = None
        offered = webhook.get("conversionReviewVersions") or ()
        self._version = next((one for one in offered if one in _KNOWN_REVIEWS), "")

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
        for index, (at, original, found) in enumerate(zip(places, originals, answered, strict=True)):
            try:
                converted[at] = _check(original, found, api_version)
            except ValueError as err:
                raise ConversionFailed(
                    f"conversion webhook for {what} returned invalid converted object at index {index}: {err}"
                ) from None
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


def converter_of(definition: Object, client: WebhookClient, *, seconds: float = TIMEOUT_SECONDS) -> Converter | None:
    """Return the converter of a definition; None if versions differ in their apiVersion only."""
    conversion = definition["spec"].get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    return ConversionWebhook(conversion.get("webhook") or {}, client, seconds=seconds)


def _describe(obj: Object) -> str:
    kind = kind_of(obj)
    return f"{kind.api_version}, Kind={kind.name}"


def _response(answer: Any, review: Object, uid: str) -> list[Any]:
    if not isinstance(answer, dict):
        raise ValueError("the answer is no object")
    if review["apiVersion"].endswith("/v1"):
        found = (answer.get("apiVersion"), answer.get("kind"))
        if found != (review["apiVersion"], "ConversionReview"):
            wanted = f"{review['apiVersion']}, Kind=ConversionReview"
            raise ValueError(f"expected webhook response of {wanted}, got {found[0] or ''}, Kind={found[1] or ''}")
    response = answer.get("response")
    if not isinstance(response, dict):
        raise ValueError("no response provided")
    if review["apiVersion"].endswith("/v1") and response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    result = response.get("result")
    status = result.get("status") if isinstance(result, dict) else ""
    if status != "Success":
        message = result.get("message") if isinstance(result, dict) else ""
        raise ValueError(message or f"response.result.status was '{status or ''}', not 'Success'")
    converted = response.get("convertedObjects") or []
    if not isinstance(converted, list):
        raise ValueError("response.convertedObjects is no list")
    return converted


def _check(original: Object, found: Any, api_version: str) -> Object:
    """Return the converted object with its original metadata; a webhook may change labels and annotations only."""
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    if found.get("apiVersion") != api_version:
        raise ValueError(f"invalid groupVersion (expected {api_version}, received {found.get('apiVersion') or ''})")
    if found.get("kind") != original["kind"]:
        raise ValueError(f"invalid kind (expected {original['kind']}, received {found.get('kind') or ''})")
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        raise ValueError("missing metadata in converted object")
    before = original["metadata"]
    for field, told in _SAME[1:]:
        if (before.get(field) or "") != (metadata.get(field) or ""):
            was, now = before.get(field) or "", metadata.get(field) or ""
            raise ValueError(f"must have the same {told}: {was} != {now}")
    restored = dict(before)
    for field in ("labels", "annotations"):
        said = metadata.get(field)
        if said is None:
            restored.pop(field, None)
            continue
        restored[field] = _text_map(field, said, before.get(field))
    return {**found, "metadata": restored}


def _text_map(field: str, said: Any, before: Any) -> dict[str, str]:
    if not isinstance(said, dict):
        raise ValueError(f"invalid metadata.{field} in converted object: it is no map")
    for key, value in said.items():
        if not isinstance(value, str):
            raise ValueError(f"metadata.{field}[{key}] must be a string, but is not in converted object")
    if said != before:
        errs = (
            validate_label(said, "metadata.labels")
            if field == "labels"
            else validate_annotation(said, "metadata.annotation")
        )
        told = [str(err) for err in errs]
        if told:
            raise ValueError(told[0] if len(told) == 1 else f"[{', '.join(told)}]")
    return said
