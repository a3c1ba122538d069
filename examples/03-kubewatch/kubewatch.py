"""Posts each created, changed and deleted Deployment and Service to a chat, through a webhook in Slack's format.

    CHAT_WEBHOOK=https://hooks.slack.com/... pinnace run examples/03-kubewatch/kubewatch.py

Objects that exist at the start are not posted. It writes nothing to the cluster, except Events about its own errors.
"""

from __future__ import annotations

import os
from typing import Any

import aiohttp

from pinnace.sdk import Operator

Object = dict[str, Any]

operator = Operator("kubewatch")


@operator.on_change("apps/v1/Deployment")
@operator.on_change("v1/Service")
async def notify(old: Object | None, new: Object | None) -> None:
    if old is not None and new is not None and old.get("spec") == new.get("spec"):
        return  # Only its status has changed.
    what = "created" if old is None else "deleted" if new is None else "changed"
    obj = new or old or {}
    metadata = obj["metadata"]
    await post(f"{obj['kind']} {metadata['namespace']}/{metadata['name']} was {what}")


async def post(text: str) -> None:
    """Raise if the chat cannot be reached: the change is then reported again later."""
    url = os.environ.get("CHAT_WEBHOOK", "")
    if not url:
        print(text, flush=True)
        return
    async with aiohttp.ClientSession(raise_for_status=True) as session, session.post(url, json={"text": text}):
        return
