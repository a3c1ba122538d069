from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from pinnace.node.errors import CreateFailed
from pinnace.node.runtime.cdi import add_devices
from pinnace.node.runtime.runtime import ContainerConfig, Mount

KIND = "example.com/class"


def write(directory: Path, name: str, device: dict[str, Any], whole: dict[str, Any] | None = None) -> None:
    directory.mkdir(exist_ok=True)
    devices = [{"name": "x", "containerEdits": device}, {"name": "y", "containerEdits": {"env": ["Y=1"]}}]
    spec = {"cdiVersion": "0.6.0", "kind": KIND, "devices": devices, "containerEdits": whole or {}}
    (directory / name).write_bytes(orjson.dumps(spec))


def edited(*directories: Path, names: tuple[str, ...] = (f"{KIND}=x",)) -> ContainerConfig:
    config = ContainerConfig(name="main", image="i", environment=[("A", "own")], cdi_devices=names)
    return add_devices(config, directories)


def test_a_container_gets_the_edits_of_its_devices_and_those_of_the_file_once(tmp_path: Path) -> None:
    device = {
        "env": ["A=device"],
        "deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/null"}],
        "mounts": [{"hostPath": "/etc", "containerPath": "/x", "options": ["ro", "nosuid", "bind"]}],
    }
    write(tmp_path, "a.json", device, {"env": ["B=1"], "additionalGids": [7]})
    config = edited(tmp_path, names=(f"{KIND}=x", f"{KIND}=y"))
    assert config.environment == [("A", "device"), ("B", "1"), ("Y", "1")]
    assert config.mounts == [
        Mount(container_path="/dev/x", host_path="/dev/null", is_device=True),
        Mount(container_path="/x", host_path="/etc", read_only=True, options=["nosuid"]),
    ]
    assert config.security.supplemental_groups == [7]


def test_a_later_directory_wins_and_two_files_of_one_contradict_each_other(tmp_path: Path) -> None:
    write(tmp_path / "first", "a.json", {"env": ["A=first"]})
    write(tmp_path / "second", "b.yaml", {"env": ["A=second"]})
    assert edited(tmp_path / "first", tmp_path / "second").environment == [("A", "second")]
    write(tmp_path / "second", "c.json", {"env": ["A=third"]})
    with pytest.raises(CreateFailed, match=r"unresolvable CDI devices example.com/class=x"):
        edited(tmp_path / "first", tmp_path / "second")


def test_files_that_are_none_of_the_interface_do_not_hide_others(tmp_path: Path) -> None:
    write(tmp_path, "good.json", {"env": ["A=good"]})
    (tmp_path / "bad.json").write_text("{[")
    (tmp_path / "list.yaml").write_text("- 1")
    (tmp_path / "text.txt").write_text("nothing")
    (tmp_path / "names.json").write_text('{"cdiVersion": "1", "kind": "a/b", "devices": [{}]}')
    (tmp_path / "large.json").write_bytes(b" " * (5 << 20))
    (tmp_path / "directory.json").mkdir()
    assert edited(tmp_path, tmp_path / "missing").environment == [("A", "good")]


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"hooks": [{"hookName": "createContainer", "path": "/bin/sh"}]}, "this node does not support hooks"),
        ({"env": ["=x"]}, "a variable has no name"),
        ({"env": "A=1"}, "env is not a list"),
        ({"mounts": [{"hostPath": "/etc/../root", "containerPath": "/x"}]}, "is not absolute"),
        ({"mounts": [{"hostPath": "/etc", "containerPath": "../x"}]}, "is not absolute"),
        ({"mounts": [{"hostPath": "/missing", "containerPath": "/x"}]}, "/missing does not exist"),
        ({"mounts": [{"hostPath": "/etc", "containerPath": "/x", "type": "tmpfs"}]}, "of the type tmpfs"),
        ({"mounts": [{}]}, "hostPath"),
        ({"deviceNodes": [{"path": "/dev/x", "hostPath": "/etc/passwd"}]}, "is not a device node"),
        ({"deviceNodes": [{"path": "/dev/null", "permissions": "r"}]}, "cannot limit /dev/null to 'r'"),
        ({"additionalGids": ["x"]}, "invalid literal"),
    ],
)
def test_edits_that_cannot_be_done_are_refused(tmp_path: Path, edits: dict[str, Any], message: str) -> None:
    write(tmp_path, "a.json", edits)
    with pytest.raises(CreateFailed, match="CDI device injection failed") as refused:
        edited(tmp_path)
    assert message in str(refused.value)
