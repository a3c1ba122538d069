"""A data directory that an older version has written opens, and its objects can be used."""

from __future__ import annotations

import lzma
from pathlib import Path

from tests.server.in_process import InProcess

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings

_OLDER = Path(__file__).parent / "data" / "state-of-an-older-version.db.xz"
_OBJECTS = (
    "/apis/iamslash.com/v1alpha1/namespaces/default/alices/my-custom-resource",
    "/apis/k106.com/v1alpha1/namespaces/default/alices/my-custom-resource",
    "/apis/extensions.example.com/v1/namespaces/default/websites/kubia",
    "/apis/batch/v1/namespaces/default/cronjobs/cronjob-example",
    "/apis/apps/v1/namespaces/default/daemonsets/daemonset-example",
    "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/d",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r",
    "/api/v1/namespaces/default/secrets/sec",
)


async def test_objects_of_an_older_version_are_read_changed_and_deleted(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(lzma.decompress(_OLDER.read_bytes()))
    async with running(Settings(data_dir=tmp_path, controllers=False, scheduler=False)) as cluster:
        api = InProcess(cluster.plane)
        for path in _OBJECTS:
            before = (await api.get(path)).json
            labelled = (await api.patch(path, {"metadata": {"labels": {"new": "yes"}}})).json
            assert int(labelled["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"]), path
            assert labelled["metadata"]["uid"] == before["metadata"]["uid"]
        assert (await api.delete(_OBJECTS[-1])).status == 200
        assert (await api.get("/readyz")).body == b"ok"


async def test_a_second_start_finds_what_the_first_has_added(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(lzma.decompress(_OLDER.read_bytes()))
    for _ in range(2):
        async with running(Settings(data_dir=tmp_path, controllers=False, scheduler=False)) as cluster:
            api = InProcess(cluster.plane)
            assert "cluster-admin" in (await api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles")).names
            assert (await api.get("/api/v1/namespaces/default/services/kubernetes")).json["spec"]["clusterIP"]
