"""A provider of load balancers in a Python file, as a cloud writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.waiting import until
from typer.testing import CliRunner

from pinnace.cli.command_table import app

CLOUD = '''
from collections.abc import Sequence
from pathlib import Path

from pinnace.sdk import LoadBalancerProvider

ACCOUNT = Path(__file__).with_name("balancers")


class Cloud(LoadBalancerProvider):
    """Names a balancer after its Service, and fails for one that it does not like."""

    async def ensure(self, service: dict, nodes: Sequence[dict]) -> Sequence[dict]:
        name = service["metadata"]["name"]
        if name == "odd":
            raise ValueError("the account has no balancer left")
        (ACCOUNT / name).write_text(",".join(node["metadata"]["name"] for node in nodes))
        return [{"hostname": f"{name}.cloud.example.com"}]

    async def delete(self, service: dict) -> None:
        (ACCOUNT / service["metadata"]["name"]).unlink(missing_ok=True)


cloud = Cloud()
'''


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    kubectl_binary()
    (tmp_path / "balancers").mkdir()
    (tmp_path / "cloud.py").write_text(CLOUD)
    server = ServerProcess.start(
        tmp_path, "--ephemeral", "--nodes", "1", "--load-balancers", str(tmp_path / "cloud.py")
    )
    try:
        yield Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path, "default")
    finally:
        server.stop()


def test_a_cloud_makes_and_removes_the_load_balancers_of_services(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create service loadbalancer web --tcp=80:80")
    ingress = "get service web -o jsonpath={.status.loadBalancer.ingress[*].hostname}"
    until(lambda: kubectl(ingress) == "web.cloud.example.com")
    assert (tmp_path / "balancers" / "web").read_text() == "node-0"
    kubectl("create service loadbalancer odd --tcp=80:80")
    until(lambda: "Error syncing load balancer: the account has no balancer left" in kubectl("describe service odd"))
    kubectl("delete service web")
    until(lambda: not (tmp_path / "balancers" / "web").exists())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "has no provider"),
        ("from pinnace.sdk import LoadBalancerProvider\n", "has no provider"),
        ("x = (\n", "cloud.py:1: '(' was never closed"),
        (None, "there is no file cloud.py"),
    ],
    ids=["nothing", "class only", "syntax error", "no file"],
)
@pytest.mark.parametrize("command", [["up", "--ephemeral"], ["controllers"]], ids=lambda words: words[0])
def test_a_file_without_a_provider_is_refused(
    command: list[str], text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "cloud.py").write_text(text)
    done = CliRunner().invoke(app, [*command, "--load-balancers", "cloud.py"])
    assert (done.exit_code, message in " ".join(done.stderr.split())) == (2, True), done.stderr
