"""Wrong answers of a conversion webhook are reported in the words of Kubernetes 1.36, and bad bundles are refused."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.extensions.custom.test_conversion import V1, V2, two_versions
from tests.extensions.definitions import DEFINITIONS, Cluster, boat, condition, reached
from tests.extensions.webhook import Object, Webhook, convert, serving

from pinnace.auth.certificates.authority import new_ca

NAME = f"{DEFINITIONS}/boats.example.com"
LEAD = "conversion webhook for example.com/v1, Kind=Boat "


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    async with serving("converter.default.svc") as result:
        yield result


def answering(**fields: Any) -> Any:
    """Answer with these fields of the response."""

    async def answer(review: Object) -> Object:
        result = await convert(review)
        result["response"].update(fields)
        return result

    return answer


def changing(**fields: Any) -> Any:
    """Answer with an object that has these fields."""

    async def answer(review: Object) -> Object:
        result = await convert(review)
        result["response"]["convertedObjects"][0].update(fields)
        return result

    return answer


def replacing(answer: Any) -> Any:
    async def send(review: Object) -> Object:
        result: Object = answer
        return result

    return send


REVIEW = "apiextensions.k8s.io/v1, Kind=ConversionReview"
WRONG: dict[str, tuple[Any, str]] = {
    "nothing": (replacing(None), f"{LEAD}failed: expected webhook response of {REVIEW}, got /, Kind="),
    "an empty review": (replacing({}), f"{LEAD}failed: expected webhook response of {REVIEW}, got /, Kind="),
    "another kind": (
        replacing({"apiVersion": "v1", "kind": "Pod"}),
        f'{LEAD}failed: no kind "Pod" is registered for version "v1" in scheme "pkg/util/webhook/client.go:71"',
    ),
    "another version": (
        replacing({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "ConversionReview"}),
        f"{LEAD}failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
    ),
    "a number as uid": (
        answering(uid=5),
        f"{LEAD}failed: json: cannot unmarshal number into Go struct field ConversionResponse.response.uid of type "
        "types.UID",
    ),
    "a text as objects": (
        answering(convertedObjects="x"),
        f"{LEAD}failed: json: cannot unmarshal string into Go struct field "
        "ConversionResponse.response.convertedObjects of type []runtime.RawExtension",
    ),
    "a text as result": (
        answering(result="x"),
        f"{LEAD}failed: json: cannot unmarshal string into Go struct field ConversionResponse.response.result of type "
        "v1.Status",
    ),
    "a failure without a message": (
        answering(result={"status": "Failure"}),
        f"{LEAD}failed: response.result.status was 'Failure', not 'Success'",
    ),
    "a number as object": (
        answering(convertedObjects=[5]),
        "json: cannot unmarshal number into Go value of type map[string]interface {}",
    ),
    "null as object": (answering(convertedObjects=[None]), "unexpected end of JSON input"),
    "an empty object": (answering(convertedObjects=[{}]), "Object 'Kind' is missing in '{}'"),
    "another version of the object": (
        changing(apiVersion="example.com/v9"),
        f"{LEAD}returned invalid object at index 0: invalid groupVersion "
        "(expected example.com/v2, received example.com/v9)",
    ),
    "another kind of object": (
        changing(kind="Ship"),
        f"{LEAD}returned invalid object at index 0: invalid kind (expected Boat, received Ship)",
    ),
    "no metadata": (
        changing(metadata=None),
        f"{LEAD}returned invalid object: must have the same name: pinnace != ",
    ),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG)
async def test_a_wrong_answer_is_reported_in_the_words_of_kubernetes(
    cluster: Cluster, webhook: Webhook, wrong: Any, message: str
) -> None:
    await cluster.define(two_versions(webhook))
    await cluster.made(V1, boat(size=3))
    webhook.answer = wrong
    reply = await cluster.get(f"{V2}/pinnace")
    assert (reply.status, reply.message) == (500, message)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"a": 1}, "metadata.labels[a] must be a string, but is int64 in converted object"),
        (["a"], "invalid metadata.labels of type []interface {} in converted object"),
    ],
    ids=["a number", "a list"],
)
async def test_wrong_labels_are_reported(cluster: Cluster, webhook: Webhook, labels: Any, message: str) -> None:
    async def relabel(review: Object) -> Object:
        result = await convert(review)
        metadata = result["response"]["convertedObjects"][0]["metadata"]
        result["response"]["convertedObjects"][0]["metadata"] = metadata | {"labels": labels}
        return result

    await cluster.define(two_versions(webhook))
    await cluster.made(V1, boat(size=3))
    webhook.answer = relabel
    assert (await cluster.get(f"{V2}/pinnace")).message == f"{LEAD}returned invalid metadata: {message}"


def with_bundle(definition: Object, bundle: bytes) -> Object:
    encoded = base64.b64encode(bundle).decode()
    definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = encoded
    return definition


async def test_an_established_definition_takes_no_bundle_without_a_certificate(
    cluster: Cluster, webhook: Webhook
) -> None:
    await cluster.define(two_versions(webhook))
    reply = await cluster.put(NAME, with_bundle((await cluster.get(NAME)).json, b"hello"))
    why = "unable to load root certificates: unable to parse bytes as PEM block"
    path = "spec.conversion.webhookClientConfig.caBundle"
    assert reply.status == 422
    assert reply.message.endswith(f'is invalid: {path}: Invalid value: "aGVsbG8=": {why}')


async def test_a_definition_is_established_once_its_bundle_can_be_used(cluster: Cluster, webhook: Webhook) -> None:
    await cluster.made(DEFINITIONS, with_bundle(two_versions(webhook), b"hello"))

    async def established(value: str) -> Object | None:
        return condition((await cluster.get(NAME)).json.get("status", {}), "Established", value)

    refused = await reached(lambda: established("False"))
    assert (refused["reason"], refused["message"]) == (
        "InvalidCABundle",
        "The conversion webhook CABundle is invalid",
    )
    corrected = with_bundle((await cluster.get(NAME)).json, new_ca().certificate_pem)
    assert (await cluster.put(NAME, corrected)).status == 200
    await reached(lambda: established("True"))
