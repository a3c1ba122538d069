"""Descriptions of ConfigMaps, Secrets and ServiceAccounts."""

from __future__ import annotations

import base64

from pinnace.cli.describe.parts import NONE, Description, describe_labels, heading
from pinnace.model.objects import Object


def config_map(page: Description, obj: Object) -> None:
    heading(page, obj)
    describe_labels(page, obj)
    page.line("\nData\n====")
    for key in sorted(obj.get("data") or {}):
        page.line(f"{key}:\n----\n{obj['data'][key]}\n")
    page.line("\nBinaryData\n====")
    for key in sorted(obj.get("binaryData") or {}):
        page.line(f"{key}: {len(base64.b64decode(obj['binaryData'][key]))} bytes")
    page.line()


def secret(page: Description, obj: Object) -> None:
    """Describe a Secret: the sizes of its values only, since a screen may be seen by others."""
    heading(page, obj)
    describe_labels(page, obj)
    page.line(f"\nType:\t{obj.get('type', '')}")
    page.line("\nData\n====")
    for key in sorted(obj.get("data") or {}):
        page.pair(key, f"{len(base64.b64decode(obj['data'][key]))} bytes")


def service_account(page: Description, obj: Object) -> None:
    heading(page, obj)
    describe_labels(page, obj)
    names = [one.get("name", "") for one in obj.get("imagePullSecrets") or ()]
    for place, name in enumerate(names or [NONE]):
        page.line(f"{'Image pull secrets:' if place == 0 else ' ' * 19}\t{name}")
