"""Posts what comes, changes and goes to a chat: every Deployment and Service, as a line in a webhook of Slack's form.

    CHAT_WEBHOOK=https://hooks.slack.com/... pinnace run examples/03-kubewatch/kubewatch.py

What was there before it started is not news. It only looks on: it writes nothing to the cluster but its own trouble.
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
async def tell(old: Object | None, new: Object | None) -> None:
    if old is not None and new is not None and old.get("spec") == new.get("spec"):
        return  # Only its status has changed.
    what = "created" if old is None else "deleted" if new is None else "changed"
    obj = new or old or {}
    metadata = obj["metadata"]
    await post(f"{obj['kind']} {metadata['namespace']}/{metadata['name']} was {what}")


async def post(text: str) -> None:
    """A chat that cannot be reached raises, and is told again later."""
    url = os.environ.get("CHAT_WEBHOOK", "")
    if not url:
        print(text, flush=True)
        return
    async with aiohttp.ClientSession(raise_for_status=True) as session, session.post(url, json={"text": text}):
        return
