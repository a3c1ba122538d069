"""`ulimit -v` and `ulimit -d`: a server says that its memory is limited too much, and never ends by a signal."""

from __future__ import annotations

import json
import os
import resource
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests.server.in_process import CONFIG_MAPS
from tests.waiting import until

import pinnace

_MOST_WRITES = 400
_LIMITS = {"-v": resource.RLIMIT_AS, "-d": resource.RLIMIT_DATA}


def start(directory: Path, option: str, kibibytes: int, *command: str) -> subprocess.Popen[str]:
    size = kibibytes << 10

    def limit() -> None:
        resource.setrlimit(_LIMITS[option], (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with (directory / "log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pinnace.cli.main", *command],
            env=os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1]), "PINNACE_NO_NODE": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=limit,
        )


@pytest.mark.parametrize("option,kibibytes", [("-v", 200_000), ("-v", 400_000), ("-v", 524_287), ("-d", 300_000)])
@pytest.mark.parametrize("command", ["up", "node"])
def test_a_limit_that_is_too_low_is_named(tmp_path: Path, command: str, option: str, kibibytes: int) -> None:
    arguments = {"up": ["--port", "0", "--data-dir", str(tmp_path / "data")], "node": ["--directory", str(tmp_path)]}
    process = start(tmp_path, option, kibibytes, command, *arguments[command])
    assert process.wait(60) == 1
    message = (tmp_path / "log").read_text()
    assert f"(ulimit {option} {kibibytes}) is too low: at least 524288 is needed" in message
    assert "Traceback" not in message


def test_writes_are_refused_before_the_memory_is_used_up(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    flags = ["--port", "0", "--data-dir", str(tmp_path / "data"), "--kubeconfig", str(path)]
    process = start(tmp_path, "-v", 540_000, "up", *flags)
    try:
        until(lambda: path.exists() or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "log").read_text()
        answers = [_create(path, f"large-{number}") for number in range(8)]
        while answers[-1][0] == 201 and len(answers) < _MOST_WRITES:
            answers.append(_create(path, f"large-{len(answers)}"))
        status, message = answers[-1]
        assert status == 503
        assert (
            "are left of the limit of address space of the server" in message
            and "raise ulimit -v (540000 now)" in message
        )
        assert process.poll() is None
    finally:
        process.terminate()
        code = process.wait(60)
    assert code == 0, (tmp_path / "log").read_text()


def _create(kubeconfig: Path, name: str) -> tuple[int, str]:
    config = yaml.safe_load(kubeconfig.read_text())
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(
        config["clusters"][0]["cluster"]["server"] + CONFIG_MAPS,
        data=json.dumps({"metadata": {"name": name}, "data": {"large": "x" * 700_000}}).encode(),
        headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())["message"]
