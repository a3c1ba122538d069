"""The certificate that all replicas of an operator show: in a Secret, made by the first, renewed before it ends."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime, timedelta

from cryptography import x509

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.sdk.certificates import ServerCertificate, new_certificate

RENEW_BEFORE = timedelta(days=60)
_ATTEMPTS = 5


def secret_name(service: str) -> str:
    return f"{service.partition('/')[2]}-webhook-certificate"


async def shared_certificate(client: Client, service: str) -> ServerCertificate:
    """The certificate for a Service (namespace/name), from its Secret; made anew if it is missing, broken or old."""
    namespace, _, name = service.partition("/")
    for _ in range(_ATTEMPTS):
        secret = await client.get_or_none("v1/Secret", secret_name(service), namespace=namespace)
        known = _read(secret) if secret is not None else None
        if known is not None:
            return known
        made = new_certificate([f"{name}.{namespace}.svc", f"{name}.{namespace}", name])
        try:
            await _write(client, secret, namespace, secret_name(service), made)
        except (errors.AlreadyExists, errors.Conflict):
            continue  # Another replica was faster: its certificate is as good.
        return made
    raise RuntimeError(f"the Secret {namespace}/{secret_name(service)} changes all the time; who else writes it?")


async def _write(client: Client, secret: Object | None, namespace: str, name: str, made: ServerCertificate) -> None:
    data = {"ca.crt": made.ca, "tls.crt": made.certificate, "tls.key": made.key}
    encoded = {file: base64.b64encode(content).decode() for file, content in data.items()}
    if secret is not None:
        await client.update({**secret, "data": encoded})
        return
    metadata = {"name": name, "namespace": namespace}
    await client.create(
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": encoded}
    )


def _read(secret: Object) -> ServerCertificate | None:
    try:
        data = {name: base64.b64decode(value) for name, value in (secret.get("data") or {}).items()}
        found = ServerCertificate(data["ca.crt"], data["tls.crt"], data["tls.key"])
        ends = x509.load_pem_x509_certificate(found.certificate).not_valid_after_utc
    except (KeyError, ValueError, binascii.Error):
        return None
    return found if ends - datetime.now(UTC) > RENEW_BEFORE else None
