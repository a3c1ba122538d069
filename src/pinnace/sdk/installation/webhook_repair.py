"""Watch the registrations of an operator's webhooks while it runs, and repair the addresses that others replace.

A definition or a configuration that is applied again, replaced or created anew has no CA, and the server refuses each
write until it has one.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable
from copy import deepcopy

import orjson

from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object, kind_of
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.installation.installation import webhook_configurations, webhook_conversion
from pinnace.sdk.installation.webhook_restore import converted_definitions

_END = b"-----END CERTIFICATE-----"
_IN_DEFINITION = ("f:spec", "f:conversion", "f:webhook")
_log = logging.getLogger(__name__)


def add_repairs(manager: Manager, declarations: Declarations, client_config: Callable[[], Object]) -> None:
    """Add a controller for each registration. `client_config` returns the clientConfig of the webhooks of now.

    The operator does not wait for these controllers: with the role of an earlier version it still works.
    """
    for registration in (*converted_definitions(declarations), *webhook_configurations(declarations, {"url": ""})):
        kind, name = kind_of(registration), registration["metadata"]["name"]
        repair = _Repair(manager, declarations, client_config, kind)
        selection = f"metadata.name={name}"
        controller = Controller(f"{declarations.name}-{kind.name.lower()}-{name}", repair.reconcile)
        manager.informer(kind, fields=selection).is_required = False
        manager.add(controller.for_(kind, fields=selection))


class _Repair:
    """Repairs one registration."""

    def __init__(
        self, manager: Manager, declarations: Declarations, client_config: Callable[[], Object], kind: Kind
    ) -> None:
        self._manager = manager
        self._declarations = declarations
        self._client_config = client_config
        self._kind = kind

    async def reconcile(self, key: Key) -> None:
        """Make a registration lead to this operator again, unless another run of it has taken over."""
        present = self._manager.informer(self._kind, fields=f"metadata.name={key.name}").cache.get(key)
        if present is None:
            return  # It is not created again: its deletion may be intended.
        patch = self._conversion(present) if "spec" in present else self._webhooks(present)
        if not patch:
            return
        version = {"metadata": {"resourceVersion": present["metadata"]["resourceVersion"]}}
        name = self._declarations.name
        try:
            await self._manager.client.patch(self._kind, key.name, {**version, **patch}, field_manager=name)
        except errors.NotFound:
            return
        _log.info("%s leads to the webhooks of %s again: its address or CA had been replaced", key.name, name)

    def _conversion(self, present: Object) -> Object:
        """Return the merge patch for a definition."""
        wanted = webhook_conversion(self._client_config())
        given = (present["spec"].get("conversion") or {}).get("webhook") or {}
        config = wanted["webhook"]["clientConfig"]
        if self._is_right(given.get("clientConfig") or {}, config, present, _IN_DEFINITION):
            return {}
        webhook = {**wanted["webhook"], "clientConfig": {"service": None, "url": None, **config}}
        return {"spec": {"conversion": {**wanted, "webhook": webhook}}}

    def _webhooks(self, present: Object) -> Object:
        """Return the merge patch for a configuration. It keeps the webhooks of a newer version of the operator."""
        configurations = webhook_configurations(self._declarations, self._client_config())
        wanted = next(made["webhooks"] for made in configurations if made["kind"] == self._kind.name)
        webhooks = deepcopy(present.get("webhooks") or wanted)
        known = {webhook["name"]: webhook for webhook in webhooks}
        for webhook in wanted:
            registered, config = known.get(webhook["name"]), webhook["clientConfig"]
            name = orjson.dumps({"name": webhook["name"]}).decode()
            path = ("f:webhooks", f"k:{name}")
            if registered is not None and not self._is_right(
                registered.get("clientConfig") or {}, config, present, path
            ):
                registered["clientConfig"] = config
        return {"webhooks": webhooks} if webhooks != (present.get("webhooks") or []) else {}

    def _is_right(self, given: Object, wanted: Object, present: Object, path: tuple[str, ...]) -> bool:
        """Return whether a clientConfig leads here, or where another run of this operator has led it."""
        path = (*path, "f:clientConfig")
        if "url" in given:
            leads_on = given["url"] == wanted.get("url") or self._owns(present, (*path, "f:url"))
        else:
            service, own = given.get("service"), wanted.get("service") or {}
            leads_on = service is not None and all(
                service.get(name) == own.get(name) or self._owns(present, (*path, "f:service", f"f:{name}"))
                for name in own.keys() | service.keys()
            )
        bundle = given.get("caBundle") or ""
        return leads_on and (_trusts(bundle, wanted) or (bool(bundle) and self._owns(present, (*path, "f:caBundle"))))

    def _owns(self, present: Object, path: tuple[str, ...]) -> bool:
        """Return whether a run of this operator has written a field last."""
        for entry in present["metadata"].get("managedFields") or ():
            if entry.get("manager") != self._declarations.name:
                continue
            fields = entry.get("fieldsV1") or {}
            for step in path:
                fields = fields.get(step)
                if not fields:
                    break
            if fields is not None:
                return True
        return False


def _trusts(bundle: str, wanted: Object) -> bool:
    """Return whether a CA bundle has the CA of the current certificate. After a renewal it has others too."""
    try:
        given = base64.b64decode(bundle)
    except binascii.Error:
        return False
    own, _, _ = base64.b64decode(wanted["caBundle"]).partition(_END)
    return own.strip() in given
