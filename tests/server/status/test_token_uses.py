"""The use of a service account token in a Secret is dated, so that no token in use is cleaned up."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from datetime import date, timedelta

from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings

LAST_USED = "kubernetes.io/legacy-token-last-used"


async def test_the_secret_of_a_token_says_when_it_was_last_used() -> None:
    async with running(Settings()) as cluster, asyncio.timeout(60):
        client = in_process_client(cluster.plane.local())
        metadata = {"name": "robot", "namespace": "default"}
        await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        annotated = {**metadata, "annotations": {"kubernetes.io/service-account.name": "robot"}}
        kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token"}
        obj = await client.create({**kind, "metadata": annotated})
        while "token" not in (obj.get("data") or {}):
            await asyncio.sleep(0)
            obj = await client.get("v1/Secret", "robot")
        assert LAST_USED not in (obj["metadata"].get("labels") or {})
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}}
        spec = {"token": b64decode(obj["data"]["token"]).decode()}
        answer = await client.create({**review, "spec": spec})
        assert answer["status"]["user"]["username"] == "system:serviceaccount:default:robot"
        while LAST_USED not in (obj["metadata"].get("labels") or {}):
            await asyncio.sleep(0)
            obj = await client.get("v1/Secret", "robot")
        used = date.fromisoformat(obj["metadata"]["labels"][LAST_USED])
        assert cluster.plane.clock.now().date() - used <= timedelta(days=1)  # Midnight may have passed.
