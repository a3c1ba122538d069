"""A webhook is called through its service."""

from __future__ import annotations

from pathlib import Path

from tests.admission.webhook_server import allowed, webhook
from tests.admission.webhooks.configurations import MUTATING, NAME, VALIDATING, configure, hook
from tests.server.in_process import (
    CONFIG_MAPS,
    InProcess,
    config_map,
)


async def test_a_service_is_called_at_its_endpoint_under_its_own_name(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}}
        await api.made("/api/v1/namespaces/default/services", {**service, "spec": {"ports": [{"port": 443}]}})
        config = {"service": {"namespace": "default", "name": "hook", "path": "/x"}, "caBundle": server.bundle}
        warned = await configure(api, VALIDATING, hook(config))
        assert warned == []
        # The API refuses endpoints on loopback, so the test sets the address in the resolver.
        api.plane.webhooks._services = _At(port)
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201
    assert len(server.requests) == 1


class _At:
    def __init__(self, port: int) -> None:
        self._port = port

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        return "127.0.0.1", self._port


async def test_a_service_that_is_not_there_is_named(api: InProcess) -> None:
    await configure(api, VALIDATING, hook({"service": {"namespace": "default", "name": "none"}}))
    reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.message == (
        f'Internal error occurred: failed calling webhook "{NAME}": failed to call webhook: '
        'Post "https://none.default.svc:443/?timeout=10s": service "none" not found'
    )


async def test_a_webhook_that_could_block_its_own_backend_is_accepted_with_a_warning(api: InProcess) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    config = {"service": {"namespace": "default", "name": "hook"}}
    (warned,) = await configure(api, MUTATING, hook(config, rules=[rule]))
    assert 'refuses pods, services, endpointslices in the namespace \\"default\\" of its own service' in warned
    selector = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]
    }
    assert await configure(api, MUTATING, hook(config, rules=[rule], namespaceSelector=selector), name="two") == []
    assert await configure(api, MUTATING, hook(config, rules=[rule], failurePolicy="Ignore"), name="three") == []
    assert (await api.delete(f"{MUTATING}/one")).status == 200
