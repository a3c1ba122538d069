"""/etc of the image `host` holds copies of the public files that programs need, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinnace.node.images.host_etc import copy_etc, public_accounts, public_groups


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """A small /etc with public and private files."""
    source = tmp_path / "machine" / "etc"
    for name in ("ssl/certs", "ssl/private", "ssh", "nginx", "python3"):
        (source / name).mkdir(parents=True)
    contents = {
        "passwd": "root:HASH:0:0::/root:/bin/sh\nwww:x:33:33::/:/bin/false\nalice:x:1000:1000::/home/alice:/bin/sh\n"
        "nobody:x:65534:65534::/:/bin/false\nbroken\n",
        "group": "root:x:0:\nsudo:HASH:27:alice,www\nalice:x:1000:\nnogroup:x:65534:\n",
        "shadow": "root:HASH::\n",
        "nsswitch.conf": "hosts: files dns\n",
        "machine-id": "0123\n",
        "ssl/certs/ca.pem": "certificate",
        "ssl/private/key.pem": "key",
        "ssl/secret.pem": "key",
        "ssh/ssh_config": "text",
        "nginx/nginx.conf": "text",
        "nginx/htpasswd": "HASH",
        "python3/sitecustomize.py": "",
    }
    for name, content in contents.items():
        (source / name).write_text(content)
        (source / name).chmod(0o640 if "HASH" in content and name not in ("passwd", "group") else 0o644)
    (source / "ssl/secret.pem").chmod(0o600)
    (source / "ssl/private").chmod(0o710)
    (source / "localtime").symlink_to("/usr/share/zoneinfo/UTC")
    os.mkfifo(source / "ssl/pipe", 0o666)
    return source


def _files(target: Path) -> set[str]:
    result = {str(path.relative_to(target)) for path in target.rglob("*") if not path.is_dir() or path.is_symlink()}
    assert not list(target.parent.glob("*.new*"))
    return result


PUBLIC = {"passwd", "group", "nsswitch.conf", "ssl/certs/ca.pem", "python3/sitecustomize.py", "localtime"}


def test_public_files_that_programs_need_are_copied(etc: Path, tmp_path: Path) -> None:
    target = tmp_path / "view" / "etc"
    copy_etc(target, source=etc)
    assert _files(target) == PUBLIC
    copy_etc(target, source=etc, programs=["nginx"])
    assert _files(target) == PUBLIC | {"nginx/nginx.conf"}
    assert "HASH" not in "".join(path.read_text() for path in target.rglob("*") if path.is_file())


def test_accounts_of_people_and_passwords_are_left_out() -> None:
    accounts = public_accounts(
        b"root:HASH:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/x\nnobody:x:65534:65534::/:/x\n:::\n"
    )
    assert accounts == b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/x\n"
    assert public_groups(b"sudo:HASH:27:alice,nobody\nalice:x:1000:\nx:y\n", accounts) == b"sudo:x:27:nobody\n"


@pytest.mark.parametrize("name", ["nsswitch.conf", "ssl/certs/ca.pem"])
def test_a_change_of_the_machine_is_followed(etc: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "view" / "etc"
    copy_etc(target, source=etc)
    inode = (target / "group").stat().st_ino
    (etc / name).write_text("new")
    (etc / "services").write_text("http 80/tcp\n")
    copy_etc(target, source=etc)
    assert (target / name).read_text() == "new"
    assert (target / "group").stat().st_ino == inode, "a file that is the same is not written again"
    (etc / name).chmod(0o600)
    (etc / "services").unlink()
    copy_etc(target, source=etc)
    assert _files(target) == PUBLIC - {name}
    (etc / "ssl").chmod(0o750)
    copy_etc(target, source=etc)
    assert not (target / "ssl/certs").exists()


def test_a_directory_and_a_file_may_change_places(etc: Path, tmp_path: Path) -> None:
    target = tmp_path / "view" / "etc"
    copy_etc(target, source=etc)
    (etc / "nsswitch.conf").unlink()
    (etc / "nsswitch.conf").mkdir()
    (etc / "python3/sitecustomize.py").unlink()
    (etc / "python3/sitecustomize.py").symlink_to("/etc/shadow")
    (etc / "localtime").unlink()
    (etc / "localtime").write_text("zone")
    copy_etc(target, source=etc)
    assert (target / "nsswitch.conf").is_dir()
    assert os.readlink(target / "python3/sitecustomize.py") == "/etc/shadow"
    assert (target / "localtime").read_text() == "zone"


def test_a_link_in_place_of_a_directory_is_not_followed(etc: Path, tmp_path: Path) -> None:
    """The view is written by root: a link in it must not lead its writes elsewhere."""
    target, outside = tmp_path / "view" / "etc", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    target.mkdir(parents=True)
    (target / "ssl").symlink_to(outside)
    copy_etc(target, source=etc)
    assert not (target / "ssl").is_symlink()
    assert [path.name for path in outside.iterdir()] == ["kept"]
