"""The certificate that all replicas of an operator share: kept in a Secret, and renewed before it expires."""

from __future__ import annotations

import base64
import binascii

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.sdk.operator.certificates import ServerCertificate, new_certificate
from pinnace.sdk.operator.installation import ServiceName

_ATTEMPTS = 5


def secret_name(service: ServiceName) -> str:
    return f"{service.name}-webhook-certificate"


async def shared_certificate(client: Client, service: ServiceName) -> ServerCertificate:
    """Return the certificate for a Service from its Secret; make a new one if it is missing, broken or due.

    The CA of the old certificate stays trusted: other replicas use it for a while.
    """
    namespace, name, _ = service
    for _ in range(_ATTEMPTS):
        secret = await client.get_or_none("v1/Secret", secret_name(service), namespace=namespace)
        known = _read(secret) if secret is not None else None
        if known is not None and not known.is_due(client.clock.now()):
            return known
        made = new_certificate([f"{name}.{namespace}.svc", f"{name}.{namespace}", name], now=client.clock.now())
        if known is not None:
            made = made.succeeding(known)
        try:
            await _write(client, secret, namespace, secret_name(service), made)
        except (errors.AlreadyExists, errors.Conflict):
            continue  # Another replica has written its certificate: use that one.
        return made
    raise RuntimeError(
        f"the Secret {namespace}/{secret_name(service)} keeps changing: stop the other process that writes it"
    )


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
        found.ends  # noqa: B018 - raises if it is no certificate
    except (KeyError, ValueError, binascii.Error):
        return None
    return found
