"""Since 1.37 the reason of a denial begins with the name of the authorizer that gives it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.server.in_process import InProcess, control_plane

from pinnace.auth.settings import AuthSettings
from pinnace.cluster.settings import Settings
from pinnace.model.users import User

NODE = User("system:node:n1", ("system:nodes", "system:authenticated"))
_REASON = "can only list/watch pods with spec.nodeName field selector"


async def _denial(settings: Settings) -> str:
    async with control_plane(settings=settings) as api:
        reply = await InProcess(api.plane, NODE).get("/api/v1/pods")
        assert reply.status == 403
        return reply.message


@pytest.mark.parametrize(("minor", "reason"), [("1.36", _REASON), ("1.37", f"node: {_REASON}")])
async def test_the_authorizer_is_named_by_its_mode(minor: str, reason: str) -> None:
    assert (await _denial(Settings(kubernetes_version=minor))).endswith(f"at the cluster scope: {reason}")


async def test_the_authorizer_is_named_as_its_configuration_names_it(tmp_path: Path) -> None:
    file = tmp_path / "authorization.yaml"
    authorizers = [{"type": "RBAC", "name": "roles"}, {"type": "Node", "name": "machines"}]
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"}
    file.write_text(yaml.safe_dump(head | {"authorizers": authorizers}))
    auth = AuthSettings(authorization_configuration=file)
    assert (await _denial(Settings(kubernetes_version="1.37", auth=auth))).endswith(f"machines: {_REASON}")
