"""Who converts custom objects between versions, if that takes more than to say another version: a webhook."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import orjson

from pinnace.extensions.connection_errors import describe_connection_error
from pinnace.model import errors
from pinnace.model.metadata import validate_annotation
from pinnace.model.objects import Object, kind_of, new_uid
from pinnace.model.selectors import validate_label

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_SECONDS = 30.0
REVIEW_GROUP = "apiextensions.k8s.io"
_KNOWN_REVIEWS = ("v1", "v1beta1")
_SAME = (("kind", "kind"), ("name", "name"), ("namespace", "namespace"), ("uid", "UID"))
_LARGEST_ANSWER = 64 << 20


class Converter(Protocol):
    async def convert(self, objects: list[Object], api_version: str) -> list[Object]:
        """The objects in this version, in the same order. Raises ApiError if any of them cannot be converted."""


class ConversionFailed(errors.ApiError):
    """The webhook is down, slow or wrong. Other kinds, and objects that need no conversion, are not touched by it."""

    code, reason = 500, ""


class ServiceAddresses(Protocol):
    """Where services are reached from here."""

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """A host and a port. Raises LookupError with a sentence if nobody serves it."""


class NoServices:
    """Stands where nothing knows of services."""

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        raise LookupError(f'service "{name}" in namespace "{namespace}" cannot be reached from here')


class WebhookCalls:
    """Posts reviews to webhooks, over connections that are kept. Close it when done."""

    def __init__(self, services: ServiceAddresses | None = None, *, seconds: float = TIMEOUT_SECONDS) -> None:
        self._services = services or NoServices()
        self.seconds = seconds
        """How long an answer may take."""
        self._session: aiohttp.ClientSession | None = None

    async def post(self, endpoint: Endpoint, review: Object) -> Any:
        """The answer's JSON. Raises OSError, LookupError, ValueError or TimeoutError, each with a sentence."""
        import aiohttp  # noqa: PLC0415 - slow to load, and most clusters need it never.

        url, host = endpoint.url, ""
        if endpoint.service:
            namespace, name, port = endpoint.service
            address, at = self._services.address_of(namespace, name, port)
            shown = f"[{address}]" if ":" in address else address
            url, host = f"https://{shown}:{at}{endpoint.path}", f"{name}.{namespace}.svc"
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession()
        headers = {"content-type": "application/json", "accept": "application/json"}
        if host:
            headers["host"] = host
        try:
            async with self._session.post(
                url,
                data=orjson.dumps(review),
                headers=headers,
                ssl=endpoint.tls,
                server_hostname=host or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=self.seconds),
            ) as answer:
                body = await answer.content.read(_LARGEST_ANSWER)
                while len(body) < _LARGEST_ANSWER and (more := await answer.content.read(_LARGEST_ANSWER)):
                    body += more  # A read returns what has come so far.
                if answer.status != 200:
                    raise ValueError(f"the server answered {answer.status}: {body[:200].decode(errors='replace')}")
                return orjson.loads(body)
        except TimeoutError:
            raise TimeoutError(f'Post "{url}": no answer within {self.seconds:g} seconds') from None
        except (aiohttp.ClientError, ssl.SSLError) as error:
            raise OSError(f'Post "{url}": {describe_connection_error(error, urlsplit(url).netloc)}') from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a webhook is, and whom to believe to be it."""

    url: str
    service: tuple[str, str, int] | None
    path: str
    tls: ssl.SSLContext

    @classmethod
    def read(cls, client_config: Mapping[str, Any]) -> Endpoint:
        bundle = base64.b64decode(client_config.get("caBundle") or "").decode("ascii", "replace").strip()
        tls = ssl.create_default_context(cadata=bundle or None)
        service = client_config.get("service")
        if service is None:
            return cls(client_config.get("url") or "", None, "", tls)
        place = (service["namespace"], service["name"], int(service.get("port") or 443))
        return cls("", place, service.get("path") or "/", tls)


class ConversionWebhook:
    """Asks a definition's webhook with ConversionReviews, one for all objects of a request."""

    def __init__(self, webhook: Mapping[str, Any], calls: WebhookCalls) -> None:
        self._webhook = webhook
        self._calls = calls
        self._endpoint: Endpoint | None = None
        offered = webhook.get("conversionReviewVersions") or ()
        self._version = next((one for one in offered if one in _KNOWN_REVIEWS), "")

    async def convert(self, objects: list[Object], api_version: str) -> list[Object]:
        places = [at for at, obj in enumerate(objects) if obj["apiVersion"] != api_version]
        if not places:
            return objects
        originals = [objects[at] for at in places]
        what = _named(originals[0])
        answered = await self._ask(originals, api_version, what)
        if len(answered) != len(originals):
            raise ConversionFailed(
                f"conversion webhook for {what} returned {len(answered)} objects, expected {len(originals)}"
            )
        converted = list(objects)
        for index, (at, original, found) in enumerate(zip(places, originals, answered, strict=True)):
            try:
                converted[at] = _checked(original, found, api_version)
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
                self._endpoint = Endpoint.read(self._webhook.get("clientConfig") or {})
            answer = await self._calls.post(self._endpoint, review)
            return _response(answer, review, uid)
        except (TimeoutError, OSError, LookupError, ValueError, TypeError) as error:
            raise ConversionFailed(f"conversion webhook for {what} failed: {error}") from None


def converter_of(definition: Object, calls: WebhookCalls) -> Converter | None:
    """Who converts between the versions of a definition; None where another apiVersion is all that differs."""
    conversion = definition["spec"].get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    return ConversionWebhook(conversion.get("webhook") or {}, calls)


def _named(obj: Object) -> str:
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


def _checked(original: Object, found: Any, api_version: str) -> Object:
    """The converted object with the metadata that it had; a webhook may change labels and annotations only."""
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
