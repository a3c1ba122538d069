"""`pinnace up` as its users run it: what it writes and says, how it stops, and what survives when it is killed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import re
import resource
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.auth.https_server import https_server
from tests.clients.server_process import ServerProcess
from tests.free_ports import free_port

import pinnace
from pinnace.cli.data_directory import UnusableDataDirectory, make_data_dir
from pinnace.client.kubeconfig import files_of
from pinnace.kinds.definitions import minors

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach a server, read from a kubeconfig as any client would."""

    url: str
    token: str
    context: ssl.SSLContext

    @classmethod
    def of(cls, kubeconfig: Path) -> Way:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        return cls(cluster["server"], user.get("token", ""), context)

    def session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self.context, limit=0)
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        return aiohttp.ClientSession(self.url, connector=connector, headers=headers)


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


@contextlib.contextmanager
def server(directory: Path, *arguments: str) -> Iterator[ServerProcess]:
    """A server that is stopped, and has stopped well, at the end."""
    directory.mkdir(exist_ok=True)
    process = ServerProcess.start(directory, *arguments)
    try:
        process.await_kubeconfig()
        yield process
    finally:
        if process.process.poll() is None:
            code = process.stop()
            assert code == 0, process.log.read_text()


@contextlib.asynccontextmanager
async def talking_to(process: ServerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with Way.of(process.kubeconfig).session() as session:
        yield session


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "pinnace.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])} | environment,
    )


async def test_a_cluster_that_is_ready_has_a_complete_private_kubeconfig(tmp_path: Path) -> None:
    process = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"), port=(port := free_port()))
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=anyone)) as session:
            while True:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"https://127.0.0.1:{port}/readyz") as answer:
                        if answer.status == 200:
                            break
                assert process.process.poll() is None, process.log.read_text()
        for path in (process.kubeconfig, tmp_path / "data" / "kubeconfig"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert Way.of(path).url == f"https://127.0.0.1:{port}"
        async with talking_to(process) as session, session.get("/api/v1/namespaces") as answer:
            assert answer.status == 200
    finally:
        assert process.stop() == 0


async def test_a_data_directory_keeps_objects_authority_and_token_and_revisions_grow(tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []
    for turn in range(2):
        with server(tmp_path / f"run-{turn}", "--data-dir", str(tmp_path / "data")) as process:
            content = yaml.safe_load(process.kubeconfig.read_text())
            async with talking_to(process) as session:
                body = {"metadata": {"name": f"turn-{turn}"}}
                async with session.post(CONFIG_MAPS, json=body) as answer:
                    assert answer.status == 201
                    revision = int((await answer.json())["metadata"]["resourceVersion"])
                async with session.get(CONFIG_MAPS) as answer:
                    names = {item["metadata"]["name"] for item in (await answer.json())["items"]}
            authority = content["clusters"][0]["cluster"]["certificate-authority-data"]
            seen.append((authority, content["users"][0]["user"], revision, names))
    first, second = seen
    assert (first[0], first[1]) == (second[0], second[1])
    assert second[2] > first[2]
    assert {"turn-0", "turn-1"} <= second[3]


async def test_two_clusters_live_side_by_side(tmp_path: Path) -> None:
    with server(tmp_path / "a", "--ephemeral") as first, server(tmp_path / "b", "--ephemeral") as other:
        async with (
            talking_to(first) as session,
            session.post(CONFIG_MAPS, json={"metadata": {"name": "mine"}}) as answer,
        ):
            assert answer.status == 201
        async with talking_to(other) as session, session.get(f"{CONFIG_MAPS}/mine") as answer:
            assert answer.status == 404


def one_line(finished: subprocess.CompletedProcess[str]) -> str:
    """Return the message of a failed command: one line, and nothing else."""
    assert finished.returncode == 1, finished
    assert finished.stdout == ""
    (line,) = finished.stderr.splitlines()
    assert line.startswith("pinnace: ")
    return line


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = one_line(run("up", "--ephemeral", "--port", str(port)))
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in message


def test_a_damaged_store_is_reported_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(garbage := b"this is not a database" * 500)
    (tmp_path / "state.db").chmod(0o600)
    message = one_line(run("up", "--data-dir", str(tmp_path), "--port", "0"))
    assert str(tmp_path / "state.db") in message
    assert (tmp_path / "state.db").read_bytes() == garbage


def test_a_data_directory_that_is_in_use_is_reported(tmp_path: Path) -> None:
    with server(tmp_path / "run", "--data-dir", str(tmp_path / "data")):
        message = one_line(run("up", "--data-dir", str(tmp_path / "data"), "--port", "0"))
    assert re.search(r"state\.db is in use by process \d+ \(.*pinnace.* up .*\); stop it", message)


def test_a_data_directory_that_cannot_be_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = one_line(run("up", "--data-dir", str(tmp_path / "file"), "--port", "0"))
    assert f"the data directory {tmp_path / 'file'} is not a directory but a file; choose another with" in message


def test_a_data_directory_of_another_user_is_reported_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # Root may write everywhere.
    with pytest.raises(UnusableDataDirectory, match=rf"{tmp_path} belongs to .*, and .* may not write to it; choose"):
        make_data_dir(tmp_path)


def test_an_address_of_another_machine_is_reported() -> None:
    message = one_line(run("up", "--ephemeral", "--port", "0", "--host", "203.0.113.7"))
    assert "choose an address of this machine, such as 127.0.0.1" in message


def test_a_kubeconfig_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = one_line(run("up", "--ephemeral", "--port", "0", "--kubeconfig", str(tmp_path / "file" / "kubeconfig")))
    assert f"the kubeconfig {tmp_path / 'file' / 'kubeconfig'} cannot be written" in message


def test_the_end_of_the_terminal_stops_it_as_ctrl_c_does(tmp_path: Path) -> None:
    with server(tmp_path, "--ephemeral") as started:
        started.process.send_signal(signal.SIGHUP)
        assert started.process.wait(60) == 0


def test_a_minor_that_cannot_be_served_is_reported() -> None:
    message = one_line(run("up", "--ephemeral", "--kubernetes-version", "1.7"))
    assert message.endswith(f"choose one of {', '.join(minors())}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--request-timeout", "soon"), "--request-timeout soon: expected a duration such as 30s"),
        (("--request-timeout", "0s"), "--request-timeout 0s: expected a duration"),
        (("--audit-webhook-batch-max-wait", "5"), "--audit-webhook-batch-max-wait 5: expected a duration"),
        (("--audit-log-path", "-"), "--audit-policy-file is missing"),
        (("--audit-webhook-config-file", "nosuch"), "--audit-policy-file is missing"),
        (("--oidc-client-id", "me"), "--oidc-client-id needs --oidc-issuer-url"),
        (("--advertise-address", "0.0.0.0"), "--advertise-address 0.0.0.0: expected an IP address by which"),
        (("--feature-gates", "HPAScaleToZeros=true"), "gate: HPAScaleToZeros; near names are HPAScaleToZero"),
        (("--runtime-config", "apps/v7=true"), "--runtime-config: group version apps/v7 that has not been registered"),
    ],
)
def test_an_option_that_cannot_be_meant_is_reported(arguments: tuple[str, str], message: str) -> None:
    assert message in one_line(run("up", "--ephemeral", "--port", "0", *arguments))


async def test_requests_are_written_down_here_and_there_and_put_aside(tmp_path: Path) -> None:
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n")
    with https_server(tmp_path, lambda path, sent: b"") as receiving:
        options = {
            "--audit-policy-file": policy,
            "--audit-log-path": log,
            "--audit-log-maxsize": 1,
            "--audit-log-maxbackup": 2,
            "--audit-webhook-config-file": receiving.kubeconfig(tmp_path / "config"),
            "--audit-webhook-batch-max-wait": "50ms",
        }
        arguments = [str(part) for pair in options.items() for part in pair]
        with server(tmp_path / "run", "--ephemeral", *arguments) as process:
            async with talking_to(process) as session:
                large = {"metadata": {"name": "large"}, "data": {"x": "y" * 300_000}}
                async with session.post(CONFIG_MAPS, json=large) as answer:
                    assert answer.status == 201
                for _ in range(12):
                    async with session.get(f"{CONFIG_MAPS}/large") as answer:
                        assert answer.status == 200
                hidden = {"metadata": {"name": "hidden"}, "stringData": {"password": "open sesame"}}
                async with session.post(CONFIG_MAPS.replace("configmaps", "secrets"), json=hidden) as answer:
                    assert answer.status == 201
    files = sorted(tmp_path.glob("audit*.log"))
    assert len(files) == 3
    assert all(path.stat().st_size <= 1024 * 1024 for path in files)
    sent = [event for _, document in receiving.requests for event in document["items"]]
    assert [event["verb"] for event in sent if (event.get("objectRef") or {}).get("name") == "hidden"]
    message = json.dumps(sent).encode() + b"".join(path.read_bytes() for path in files)
    assert b"open sesame" not in message and base64.b64encode(b"open sesame") not in message


def test_nothing_kept_and_something_kept_cannot_be_combined(tmp_path: Path) -> None:
    assert "leave one of them out" in one_line(run("up", "--ephemeral", "--data-dir", str(tmp_path)))


async def test_an_older_minor_is_served_on_request(tmp_path: Path) -> None:
    version = ("--kubernetes-version", "1.25", "--feature-gates", "HPAScaleToZero=true")
    arguments = ("--ephemeral", *version, "--runtime-config", "node.k8s.io/v1=false", "--no-old-versions")
    with server(tmp_path, *arguments) as process:
        async with talking_to(process) as session:
            async with session.get("/version") as answer:
                assert (await answer.json())["minor"] == "25"
            async with session.get("/apis") as answer:
                groups = {group["name"] for group in (await answer.json())["groups"]}
        assert "autoscaling" in groups
        assert "resource.k8s.io" not in groups
        assert "node.k8s.io" not in groups


def test_a_cluster_is_merged_into_the_users_own_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    other = {"name": "work", "cluster": {"server": "https://example.com"}}
    mine.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "clusters": [other], "current-context": "work"})
    )
    monkeypatch.setenv("KUBECONFIG", str(mine))
    assert files_of(os.environ)[0] == mine
    with server(tmp_path / "run", "--ephemeral", "--merge", "--name", "play"):
        content = yaml.safe_load(mine.read_text())
    assert [cluster["name"] for cluster in content["clusters"]] == ["work", "play"]
    assert content["current-context"] == "play"


async def test_a_server_that_is_reported_to_stop_finishes_requests_and_ends_watches(tmp_path: Path) -> None:
    with server(tmp_path, "--data-dir", str(tmp_path / "data")) as process:
        async with talking_to(process) as session:
            big = {"a": "x" * 500_000}
            for number in range(20):
                async with session.post(CONFIG_MAPS, json={"metadata": {"name": f"big-{number}"}, "data": big}) as made:
                    assert made.status == 201
                    revision = (await made.json())["metadata"]["resourceVersion"]
            watch = await session.get(f"{CONFIG_MAPS}?watch=1&resourceVersion={revision}")
            assert watch.status == 200
            listing = await session.get(CONFIG_MAPS)  # The head is here; ten megabytes are on their way.
            process.process.send_signal(signal.SIGTERM)
            assert len((await listing.json())["items"]) >= 20
            assert await watch.read() == b"", "the watch ends cleanly, which is no error"
        assert await asyncio.to_thread(process.process.wait, 10) == 0
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(Way.of(process.kubeconfig).url, ssl=False)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="there is no /proc here")
def test_as_many_clients_may_connect_as_the_system_grants(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        with server(tmp_path, "--ephemeral") as process:
            process.await_kubeconfig()
            limits = Path(f"/proc/{process.process.pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert line.split()[3] == line.split()[4]


def test_help_teaches() -> None:
    overview = run("--help").stdout
    assert "up" in overview
    assert "version" in overview
    text = " ".join(run("up", "--help").stdout.split())
    for option in ("--data-dir", "--ephemeral", "--port", "--kubeconfig", "--merge", "--kubernetes-version"):
        assert option in text
    assert "Ctrl-C stops it" in text


def test_the_version_is_reported() -> None:
    assert (
        run("version").stdout == f"pinnace {pinnace.__version__}, serving Kubernetes {minors()[0]} to {minors()[-1]}\n"
    )


# Killed.

ROUNDS = 8
WRITERS = 12


@dataclass(slots=True)
class Known:
    """The state of one writer's object: the value of the last answer, and the values sent after that."""

    acknowledged: str | None = None
    """The value of the last answered write; None: the object is gone, or never was."""
    sent: list[str | None] = field(default_factory=list)
    """Writes without an answer, in order; None is a deletion."""
    answers: int = 0

    def may_be(self, value: str | None) -> bool:
        return value == self.acknowledged or value in self.sent


async def write_until_killed(session: aiohttp.ClientSession, name: str, known: Known, label: str) -> None:
    """Create, change and delete one object over and over, as fast as the server answers."""
    with contextlib.suppress(aiohttp.ClientError, ConnectionError, asyncio.TimeoutError):
        for turn in range(10_000):
            value = f"{label}-{turn}"
            target = f"{CONFIG_MAPS}/{name}"
            body = {"metadata": {"name": name}, "data": {"value": value, "copy": value}}
            if known.acknowledged is None:
                known.sent.append(value)
                request = session.post(CONFIG_MAPS, json=body)
            elif turn % 5 == 4:
                known.sent.append(None)
                request = session.delete(target)
            else:
                known.sent.append(value)
                request = session.put(target, json=body)
            async with request as answer:
                assert answer.status in (200, 201), await answer.text()
                await answer.read()
            known.acknowledged, known.sent = known.sent[-1], []
            known.answers += 1


async def test_a_killed_server_keeps_every_write_that_it_answered(tmp_path: Path) -> None:
    known = {f"writer-{number}": Known() for number in range(WRITERS)}
    chance = random.Random(7)
    revision = unanswered = 0
    for turn in range(ROUNDS + 1):
        process = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"))
        try:
            process.await_kubeconfig()
            async with talking_to(process) as session:
                async with session.get(CONFIG_MAPS) as answer:
                    listed = json.loads(await answer.read())
                obj = {item["metadata"]["name"]: item.get("data", {}) for item in listed["items"]}
                assert int(listed["metadata"]["resourceVersion"]) >= revision, "revisions never go back"
                for name, writer in known.items():
                    data = obj.get(name)
                    assert data is None or data["value"] == data["copy"], "half an object"
                    value = data["value"] if data is not None else None
                    assert writer.may_be(value), (name, writer, value)
                    writer.acknowledged, writer.sent = value, []
                assert all(name in known or name == "kube-root-ca.crt" for name in obj)
                revision = int(listed["metadata"]["resourceVersion"])
                if turn == ROUNDS:
                    break
                writers = [
                    asyncio.create_task(write_until_killed(session, name, writer, f"{turn}"))
                    for name, writer in known.items()
                ]
                enough = sum(writer.answers for writer in known.values()) + chance.randrange(20, 300)
                while sum(writer.answers for writer in known.values()) < enough:
                    assert process.process.poll() is None, process.log.read_text()
                    await asyncio.sleep(0)
                process.process.kill()
                await asyncio.gather(*writers)
                unanswered += sum(len(writer.sent) for writer in known.values())
        finally:
            if process.process.poll() is None:
                process.process.kill()
            process.process.wait()
    assert unanswered, "the server was never killed in the middle of a write"
