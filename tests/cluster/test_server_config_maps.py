"""The API server keeps its own ConfigMaps in kube-system, with or without controllers."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from tests.server.in_process import MERGE, InProcess

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
TRUST = f"{CONFIG_MAPS}/extension-apiserver-authentication"
TRACKING = f"{CONFIG_MAPS}/kube-apiserver-legacy-service-account-token-tracking"


@pytest.mark.parametrize("controllers", [True, False])
async def test_both_exist_when_the_server_is_ready(tmp_path: Path, controllers: bool) -> None:
    async with running(Settings(data_dir=tmp_path, controllers=controllers)) as cluster:
        api = InProcess(cluster.plane)
        trust = (await api.get(TRUST)).json
        assert trust["data"]["client-ca-file"] == (tmp_path / "pki" / "ca.crt").read_text()
        assert trust["data"]["requestheader-client-ca-file"].startswith("-----BEGIN CERTIFICATE-----")
        assert json.loads(trust["data"]["requestheader-username-headers"]) == ["X-Remote-User"]
        assert json.loads(trust["data"]["requestheader-allowed-names"]) == ["front-proxy-client"]
        assert [entry["manager"] for entry in trust["metadata"]["managedFields"]] == ["kube-apiserver"]
        since = date.fromisoformat((await api.get(TRACKING)).json["data"]["since"])
        assert cluster.plane.clock.now().date() - since <= timedelta(days=1)  # Midnight may have passed.


@pytest.mark.parametrize(
    ("path", "patch"),
    [(TRUST, {"client-ca-file": "mine", "other": "kept"}), (TRACKING, {"since": "yesterday", "other": "kept"})],
    ids=["trust", "tracking"],
)
async def test_entries_are_put_right_and_those_of_others_kept(path: str, patch: dict[str, str]) -> None:
    async with running(Settings(controllers=False)) as cluster:
        api = InProcess(cluster.plane)
        before = (await api.get(path)).json
        wanted = before["data"] | {"other": "kept"}
        version = before["metadata"]["resourceVersion"]
        name = before["metadata"]["name"]
        watch = await api.watch(f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name={name}&resourceVersion={version}")
        await api.call("PATCH", path, {"data": patch}, MERGE)
        await watch.until(lambda event: bool(event["object"]["data"] == wanted))
        await api.call("DELETE", path)
        await watch.until(lambda event: bool(event["type"] == "ADDED"))
        watch.close()
