"""Install an operator's definitions and webhook configurations, and wait until the server serves them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from pinnace.client.client import Client
from pinnace.client.mapping import NoSuchKind, kind_from
from pinnace.model import errors
from pinnace.model.objects import Kind, Object, kind_of
from pinnace.reconcile.conditions import condition, is_true
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.handlers.handlers import AdmissionHandler
from pinnace.sdk.resources.readiness import READY_SECONDS, NotEstablished, NotReadyInTime, wait_until_ready

_log = logging.getLogger(__name__)

DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
Rights = Literal["role", "admin"]
"""The permissions of an operator in a test: those of its generated role, or all."""
_SERVICE = re.compile(r"(?P<namespace>[^/:]+)/(?P<name>[^/:]+)(:(?P<port>[0-9]{1,5}))?")
_REVIEW_VERSIONS = ["v1"]


async def install_definitions(
    client: Client, declarations: Declarations, client_config: Object | None, *, only_converted: bool = False
) -> None:
    """Make the server serve the operator's kinds. `client_config` is the clientConfig of its webhooks.

    With `only_converted` the definitions without a conversion webhook are skipped: they are installed separately.
    """
    conversion = webhook_conversion(client_config) if client_config is not None else None
    for definition in declarations.crds(conversion=conversion):
        if only_converted and "conversion" not in definition["spec"]:
            continue
        await put(client, definition, manager=declarations.name)
        await wait_until_established(client, definition["metadata"]["name"])


async def install_account(client: Client, objects: Iterable[Object]) -> None:
    """Give an operator its generated account and roles, for tests and development clusters.

    A namespace that the operator watches is created if there is none: it may come later than the operator.
    """
    for obj in objects:
        try:
            await client.apply(obj, force=True)
        except errors.NotFound:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": obj["metadata"]["namespace"]}}
            await client.create(namespace)
            await client.apply(obj, force=True)


async def install_external_definitions(client: Client, declarations: Declarations) -> None:
    """Make the server serve the external kinds that the operator uses, if it does not. For development clusters."""
    for definition in declarations.external_crds():
        name, spec = definition["metadata"]["name"], definition["spec"]
        if await client.get_or_none(DEFINITION, name) is not None or await _is_served(client, spec):
            continue
        try:
            await client.create(definition, field_manager=declarations.name)
        except errors.AlreadyExists:
            continue  # Another operator in this cluster uses it too and has just created it.
        await wait_until_established(client, name)
        _log.info(
            "%s is an external kind that is not installed in this cluster; created its CRD from the class, for %s",
            name,
            declarations.name,
        )


async def _is_served(client: Client, spec: Object) -> bool:
    """Return whether the kind is served without a definition, by an aggregated API server."""
    for version in spec["versions"]:
        try:
            await client.kinds.find(Kind(spec["group"], version["name"], spec["names"]["kind"]))
        except NoSuchKind:
            continue
        return True
    return False


async def wait_until_established(client: Client, name: str) -> None:
    """Return when a definition is served. Raise NotEstablished if its names are taken, or after READY_SECONDS."""

    def is_established(definition: Object) -> bool:
        names = condition(definition, "NamesAccepted")
        if names is not None and names["status"] == "False":
            raise NotEstablished(f"{name} is not served: {names.get('message')}")
        return is_true(definition, "Established")

    try:
        await wait_until_ready(client, DEFINITION, name, is_established)
    except NotReadyInTime as late:
        status = late.last.get("status")
        raise NotEstablished(f"{name} is not served after {READY_SECONDS:.0f} s; its status: {status}") from None


def webhook_conversion(client_config: Object) -> Object:
    """Return the spec.conversion of a CRD that the operator converts."""
    config = _with_path(client_config, "/convert")
    return {"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": _REVIEW_VERSIONS}}


async def install_webhooks(client: Client, declarations: Declarations, client_config: Object) -> None:
    """Make the server call the operator's validating and mutating handlers."""
    for configuration in webhook_configurations(declarations, client_config):
        await put(client, configuration, manager=declarations.name)


async def put(client: Client, obj: Object, *, manager: str) -> None:
    """Apply a definition or a webhook configuration, even if another manager has set another address.

    An applied url does not remove the service of another manager, nor the reverse, and the server rejects both
    together: such an address is replaced by a patch first.
    """
    kind, name = kind_of(obj), obj["metadata"]["name"]
    present = await client.get_or_none(kind, name)
    if present is not None and _address_types(present) != _address_types(obj):
        await client.patch(kind, name, _replacement(obj), field_manager=manager)
    await client.apply(obj, field_manager=manager, force=True)


def _address_types(obj: Object) -> list[str]:
    """Return "service" or "url" for each webhook of a definition or a configuration."""
    conversion = (obj.get("spec") or {}).get("conversion") or {}
    webhooks = obj["webhooks"] if "webhooks" in obj else [conversion.get("webhook") or {}]
    return [next(iter({"service", "url"} & (webhook.get("clientConfig") or {}).keys()), "") for webhook in webhooks]


def _replacement(obj: Object) -> Object:
    """Return the merge patch that replaces the addresses of all webhooks."""
    if "webhooks" in obj:
        return {"webhooks": obj["webhooks"]}
    conversion = obj["spec"].get("conversion") or {"strategy": "None"}
    webhook = conversion.get("webhook")
    if webhook is not None:
        webhook = {**webhook, "clientConfig": {"service": None, "url": None, **webhook["clientConfig"]}}
    return {"spec": {"conversion": {**conversion, "webhook": webhook}}}


def webhook_configurations(declarations: Declarations, client_config: Object) -> list[Object]:
    """Return the webhook configurations of an operator: at most one mutating and one validating."""
    configurations = []
    for mutates, kind in ((True, "MutatingWebhookConfiguration"), (False, "ValidatingWebhookConfiguration")):
        handlers = [handler for handler in declarations.admission if handler.mutates is mutates]
        webhooks = [
            _webhook(handler, f"{number}.{declarations.name}", client_config) for number, handler in enumerate(handlers)
        ]
        if webhooks:
            configurations.append(
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": kind,
                    "metadata": {"name": declarations.name},
                    "webhooks": webhooks,
                }
            )
    return configurations


def _webhook(handler: AdmissionHandler, name: str, client_config: Object) -> Object:
    kind = kind_from(handler.kind)
    rule = {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "resources": [handler.plural],
        "operations": list(handler.operations),
        "scope": "*",
    }
    return {
        "name": f"{kind.name.lower()}-{name}.{kind.group or 'core'}",
        "clientConfig": _with_path(client_config, handler.path),
        "rules": [rule],
        "admissionReviewVersions": _REVIEW_VERSIONS,
        "sideEffects": "None",
        "failurePolicy": "Ignore" if handler.ignore_failure else "Fail",
        "timeoutSeconds": 10,
    }


class ServiceName(NamedTuple):
    """A Service of the cluster, written as namespace/name or namespace/name:port."""

    namespace: str
    name: str
    port: int = 443

    @classmethod
    def parse(cls, text: str) -> ServiceName:
        match = _SERVICE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} does not name a Service; write namespace/name, or namespace/name:port")
        return cls(match["namespace"], match["name"], int(match["port"] or 443))


def service_reference(service: ServiceName) -> Object:
    """Return the `service` of a clientConfig."""
    return service._asdict()


def _with_path(client_config: Object, path: str) -> Object:
    if "service" in client_config:
        return {**client_config, "service": {**client_config["service"], "path": path}}
    return {**client_config, "url": f"{client_config['url']}{path}"}
