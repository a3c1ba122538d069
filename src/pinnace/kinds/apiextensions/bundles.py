"""The CA bundle of a conversion webhook: a definition with one that cannot be used is not established."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from pinnace.model.field_errors import FieldError, invalid
from pinnace.model.objects import NOTHING
from pinnace.model.typed_objects import CustomResourceDefinitionSpec
from pinnace.process.tls import UnusableBundle, readable_certificates


def has_unusable_bundle(spec: CustomResourceDefinitionSpec) -> bool:
    return any(True for _ in validate_bundle(spec))


def validate_bundle(spec: CustomResourceDefinitionSpec) -> Iterator[FieldError]:
    """Yield an error for a bundle without a certificate."""
    webhook = (spec.get("conversion") or NOTHING).get("webhook") or NOTHING
    bundle = (webhook.get("clientConfig") or {}).get("caBundle")
    if not bundle:
        return
    try:
        readable_certificates(base64.b64decode(bundle))
    except (UnusableBundle, binascii.Error) as error:
        path = "spec.conversion.webhookClientConfig.caBundle"
        yield invalid(path, bundle, f"unable to load root certificates: {error}")
