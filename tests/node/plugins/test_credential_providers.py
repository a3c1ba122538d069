"""Credential providers, as programs that a test writes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.node.agent.conftest import NodeInMemory, memory_node

from pinnace.node.image_service import RegistryCredentials
from pinnace.node.plugins import credential_providers
from pinnace.node.plugins.credential_providers import CredentialProviders, matches, read_providers
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.testing.clock import ManualClock

__all__ = ["memory_node"]
VERSION = "credentialprovider.kubelet.k8s.io/v1"
SCRIPT = """#!/bin/sh
cat >> $(dirname $0)/requests
echo >> $(dirname $0)/requests
%s
"""


def respond(auth: dict[str, Any], scope: str = "Image", /, **further: Any) -> str:
    """Return the script of a provider that answers this."""
    credentials = {pattern: {"username": "u", "password": password} for pattern, password in auth.items()}
    response = {"kind": "CredentialProviderResponse", "apiVersion": VERSION, "cacheKeyType": scope}
    return f"cat <<'END'\n{json.dumps({**response, 'auth': credentials, **further})}\nEND"


class Machine:
    """The configuration and the programs of a machine."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "config.yaml"
        self.programs = directory / "bin"
        self.programs.mkdir()
        self.clock = ManualClock()

    def add(self, script: str, **stated: Any) -> CredentialProviders:
        """Return the providers: one with this script, configured with the defaults of a test and what it states."""
        (self.programs / "p").write_text(SCRIPT % script)
        (self.programs / "p").chmod(0o755)
        default = {
            "name": "p",
            "matchImages": ["*.example.com", "docker.io"],
            "defaultCacheDuration": "1h",
            "apiVersion": VERSION,
        }
        self.configure({"providers": [{**default, **stated}]})
        return CredentialProviders(read_providers(self.config, self.programs), self.clock)

    def configure(self, fields: dict[str, Any]) -> None:
        head = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig"}
        self.config.write_text(json.dumps({**head, **fields}))

    @property
    def requests(self) -> list[dict[str, Any]]:
        file = self.programs / "requests"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def passwords(answer: list[RegistryCredentials]) -> list[str]:
    return [credentials.password for credentials in answer]


async def test_a_provider_is_asked_for_its_images_and_the_closest_credentials_come_first(machine: Machine) -> None:
    answer = {"a.example.com": "host", "https://a.example.com/v2/team": "path", "b.example.com": "other"}
    providers = machine.add(f'test "$1$E" = -xy && {respond(answer)}', args=["-x"], env=[{"name": "E", "value": "y"}])
    assert passwords(await providers.find("a.example.com/team/web")) == ["path", "host"]
    assert await providers.find("elsewhere.org/web") == []
    request = {"kind": "CredentialProviderRequest", "apiVersion": VERSION, "image": "a.example.com/team/web"}
    assert machine.requests == [request]


async def test_those_of_docker_hub_hold_for_its_images(machine: Machine) -> None:
    providers = machine.add(respond({"https://index.docker.io/v1/": "hub"}))
    assert passwords(await providers.find("docker.io/library/web")) == ["hub"]


@pytest.mark.parametrize(
    ("scope", "further", "calls"),
    [("Image", {}, 3), ("Registry", {}, 2), ("Global", {}, 1), ("Global", {"cacheDuration": "0"}, 4)],
)
async def test_answers_are_kept_for_what_they_hold_for(
    machine: Machine, scope: str, further: dict[str, str], calls: int
) -> None:
    providers = machine.add(respond({"*.example.com": "x"}, scope, **further))
    for image in ("a.example.com/x", "a.example.com/x", "a.example.com/y", "b.example.com/x"):
        assert passwords(await providers.find(image)) == ["x"]
    assert len(machine.requests) == calls
    await machine.clock.advance(3601)
    await providers.find("a.example.com/x")
    assert len(machine.requests) == calls + 1


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo the reason >&2; exit 3", "exit status 3: the reason"),
        ("echo garbage", "the response is not JSON"),
        ("echo '{}'", "failed to decode CredentialProviderResponse"),
        (respond({}, "Everything"), "did not return a valid cacheKeyType: Everything"),
        (respond({}, apiVersion="other/v1"), "actual apiVersion:other/v1"),
        (respond({}, auth=["x"]), "malformed cacheDuration or auth"),
        (respond({}, cacheDuration="soon"), "malformed cacheDuration or auth"),
        ("yes", "it writes more than 1048576 bytes"),
    ],
)
async def test_a_provider_that_fails_gives_no_credentials_and_is_asked_again(
    machine: Machine, caplog: pytest.LogCaptureFixture, script: str, message: str
) -> None:
    providers = machine.add(script)
    for _ in range(2):
        assert await providers.find("a.example.com/x") == []
    assert message in caplog.text
    assert len(machine.requests) == 2


async def test_a_process_that_holds_the_pipes_of_a_provider_is_not_waited_for(
    machine: Machine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_providers, "_SECONDS", 1.0)
    providers = machine.add("setsid sleep 300 & echo $! > $(dirname $0)/pid")
    try:
        async with asyncio.timeout(60):
            assert await providers.find("a.example.com/x") == []
        assert "no answer within 1 s" in caplog.text
    finally:
        os.kill(int((machine.programs / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"name": "../p"}, 'provider name is empty, "." or ".."'),
        ({"name": "missing"}, "missing did not exist"),
        ({"apiVersion": "v1"}, 'apiVersion: Unsupported value: "v1"'),
        ({"matchImages": []}, "at least 1 item in matchImages is required"),
        ({"defaultCacheDuration": None}, "defaultCacheDuration: Required value"),
        ({"defaultCacheDuration": "-1s"}, "must be greater than or equal to 0"),
        ({"defaultCacheDuration": "soon"}, "it is no duration"),
        ({"tokenAttributes": {"cacheType": "Token"}}, "this node gives providers no tokens"),
        ({"unknown": 1}, "unknown field"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(machine: Machine, stated: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        machine.add("", **stated)
    assert message in str(refused.value)


def test_a_configuration_has_providers_and_each_name_once(machine: Machine, tmp_path: Path) -> None:
    machine.configure({"providers": []})
    with pytest.raises(ConfigurationError, match="at least 1 item in plugins is required"):
        read_providers(machine.config, machine.programs)
    with pytest.raises(ConfigurationError, match="did not exist"):
        read_providers(machine.config, tmp_path / "none")
    machine.add("")
    (tmp_path / "again.yaml").write_text(machine.config.read_text())
    with pytest.raises(ConfigurationError, match='duplicate provider name "p"'):
        read_providers(tmp_path, machine.programs)


@pytest.mark.parametrize(
    ("pattern", "image", "is_match"),
    [
        ("*.example.com", "a.example.com/x", True),
        ("*.example.com", "a.b.example.com/x", False),
        ("*.*.example.com", "a.b.example.com/x", True),
        ("example.com", "example.com:5000/x", False),
        ("example.com:5000", "example.com:5000/x", True),
        ("example.com/team", "example.com/team/x", True),
        ("example.com/team", "example.com/other", False),
        ("a*.example.com", "ab.example.com/x", True),
        ("example.com:port", "example.com/x", False),
    ],
)
def test_images_match_as_kubelet_has_it(pattern: str, image: str, is_match: bool) -> None:
    assert matches(pattern, image) is is_match


async def test_a_pull_uses_the_credentials_of_providers(memory_node: NodeInMemory) -> None:
    images: list[str] = []

    async def find(image: str) -> list[RegistryCredentials]:
        images.append(image)
        return []

    await memory_node.kill_agent()
    memory_node.options = {"find_credentials": find}
    await memory_node.start_agent()
    await memory_node.create("one")
    await memory_node.until_phase("one", "Running")
    assert images == ["docker.io/library/web"]
