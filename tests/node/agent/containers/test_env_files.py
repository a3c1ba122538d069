"""Variables from files that init containers write to a volume, and files that a hostile one puts there."""

from __future__ import annotations

import asyncio
import threading
from io import BytesIO
from typing import Any, BinaryIO

import pytest
from tests.loop_turns import counting_turns
from tests.node.agent.conftest import RealNode

from pinnace.model.objects import Object
from pinnace.model.typed_objects import FileKeySelector
from pinnace.node.agent.containers import env_files
from pinnace.node.agent.containers.env_files import EnvFile, EnvFiles, read_env_file
from pinnace.node.errors import ConfigRefused

_MOUNT = {"volumeMounts": [{"name": "env", "mountPath": "/env"}]}


def _spec(write: str, *, medium: str = "", **reference: Any) -> Object:
    """A pod whose init container runs a command, and whose container has the variable A from /env/file."""
    stated = {"volumeName": "env", "path": "file", "key": "A", **reference}
    return {
        "volumes": [{"name": "env", "emptyDir": {"medium": medium}}],
        "initContainers": [{"name": "first", "image": "host", "command": ["sh", "-c", write], **_MOUNT}],
        "container": {"env": [{"name": "A", "valueFrom": {"fileKeyRef": stated}}]},
        "restartPolicy": "Never",
    }


def _waiting(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    waiting: Object = (statuses[0].get("state") or {}).get("waiting") or {}
    return waiting


@pytest.mark.parametrize("medium", ["", "Memory"], ids=["disk", "memory"])
async def test_a_variable_has_the_value_that_an_init_container_has_written(node: RealNode, medium: str) -> None:
    await node.create("reads", "echo [$A]", **_spec("umask 077; echo \"A='1 2'\" > /env/file", medium=medium))
    await node.until_phase("reads", "Succeeded")
    assert await node.logs("reads") == "[1 2]\n"


async def test_an_optional_variable_may_be_missing(node: RealNode) -> None:
    await node.create("reads", "echo ${A-none}", **_spec("echo \"B='1'\" > /env/file", optional=True))
    await node.until_phase("reads", "Succeeded")
    assert await node.logs("reads") == "none\n"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        ("echo \"B='1'\" > /env/file", 'environment variable key "A" not found in file "file"'),
        ("true", "couldn't parse env file"),
        ("mkfifo /env/file", "couldn't parse env file"),
        ("mkdir /env/file", "couldn't parse env file"),
        ("ln -s /etc/hostname /env/file", "couldn't parse env file"),
        ("ln -s ../../../../../../../../etc/passwd /env/file", "couldn't parse env file"),
        ("ln -s /proc/self/environ /env/file", "couldn't parse env file"),
        ("head -c 2000000 /dev/zero > /env/file", "couldn't parse env file"),
        ("echo A=1 > /env/file", "couldn't parse env file"),
    ],
    ids=["no key", "no file", "fifo", "directory", "link", "way up", "proc", "long", "not quoted"],
)
async def test_a_file_that_is_none_keeps_the_container_waiting(node: RealNode, write: str, message: str) -> None:
    await node.create("reads", "echo [$A]", **_spec(write))
    pod = await node.until_pod("reads", lambda pod: _waiting(pod).get("reason") == "CreateContainerConfigError")
    assert _waiting(pod)["message"] == message


async def test_a_link_within_the_volume_is_followed(node: RealNode) -> None:
    await node.create("reads", "echo [$A]", **_spec("echo \"A='1'\" > /env/real; ln -s /real /env/file"))
    await node.until_phase("reads", "Succeeded")
    assert await node.logs("reads") == "[1]\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("KEY='one'", "one"),
        ("# KEY='no'\n\n \t\n\tKEY='one' # note\nKEY='two'\n", "one"),
        ("OTHER='a\n# no comment\nb'\nKEY='$HOME \\n \"x\"'\n", '$HOME \\n "x"'),
        ("KEY='first\r\nsecond'\r\n", "first\nsecond"),
        ("KEY= 'x'\nKEY='y'", ""),
        ("KEYS='x'", ""),
        ("", ""),
        ("KEY='x'\nbroken line", "x"),
    ],
)
def test_a_value_is_read_from_a_file(text: str, value: str) -> None:
    assert read_env_file(text).value("KEY") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "invalid environment variable format at line 1: missing '='"),
        ("\n='x'", "invalid environment variable format at line 2: empty variable name"),
        ("KEY ='x'", "invalid environment variable format at line 1: whitespace before '=' is not allowed"),
        ("KEY=x", "invalid environment variable format at line 1: value must be enclosed in single quotes"),
        ("A='1'\nKEY='x' y", "invalid environment variable format at line 2: unexpected content after closing quote"),
        ("A='\n'\nKEY='x\ny", "invalid environment variable format starting at line 3: unclosed single quote"),
    ],
)
def test_a_file_that_is_no_list_of_variables_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        read_env_file(text).value("KEY")


class Volume:
    """A volume whose every file has the same content; counts how often files are read."""

    def __init__(self, content: bytes) -> None:
        self.opened = 0
        self._content = content

    async def open_file(self, volume: str, path: str) -> BinaryIO:
        self.opened += 1
        return BytesIO(self._content)


def _reference(path: str = "file", key: str = "A") -> FileKeySelector:
    return {"volumeName": "env", "path": path, "key": key}


async def test_a_file_is_read_once_for_all_variables_of_a_container() -> None:
    volume = Volume(b"".join(b"V%d='%d'\n" % (number, number) for number in range(1000)))
    files = EnvFiles(volume.open_file)
    values = [await files.value(_reference(key=f"V{number}")) for number in range(1000)]
    assert values == [str(number) for number in range(1000)]
    assert volume.opened == 1


async def test_many_large_files_are_refused() -> None:
    volume = Volume(b"A='" + b"x" * (900 << 10) + b"'\n")
    files = EnvFiles(volume.open_file)
    with pytest.raises(ConfigRefused, match="couldn't parse env file"):
        for number in range(100):
            await files.value(_reference(path=f"file-{number}"))
    assert volume.opened < 12


async def test_a_long_file_leaves_the_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 200,000 variables is read in a thread: here the thread ends only after turns of the loop."""
    has_turned = threading.Event()

    def read(text: str) -> EnvFile:
        assert has_turned.wait(60)
        return read_env_file(text)

    monkeypatch.setattr(env_files, "read_env_file", read)
    volume = Volume(b"B=''\n" * 200_000 + b"A='1'\n")
    value = asyncio.create_task(EnvFiles(volume.open_file).value(_reference()))
    async with counting_turns() as turns:
        while turns.count < 10:
            await asyncio.sleep(0)
        has_turned.set()
        assert await value == "1"
