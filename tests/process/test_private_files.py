"""Secrets and data directories that other users of the machine could read or change."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest
from tests.clients.server_process import ServerProcess
from tests.node.ordinary_user import NOBODY

import pinnace
from pinnace.process.private_files import UnsafeFile, check_data_directory, check_private

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users: run as root")


def key_file(directory: Path, mode: int) -> Path:
    path = directory / "keys"
    path.write_text(f"one:{b64encode(bytes(32)).decode()}\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode,what", [(0o666, "read and write"), (0o604, "read"), (0o620, "write"), (0o640, "read")])
def test_a_server_refuses_an_encryption_key_that_others_can_reach(tmp_path: Path, mode: int, what: str) -> None:
    path = key_file(tmp_path, mode)
    server = ServerProcess.start(
        tmp_path, "--data-dir", str(tmp_path / "data"), "--no-node", "--encryption-key-file", str(path)
    )
    assert server.await_end() == 1
    expected = f"the encryption key file {path} has mode {mode:04o}, so other users can {what} it: chmod 600 {path}"
    assert expected in server.log.read_text()
    assert not (tmp_path / "data" / "state.db").exists()


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_that_its_owner_alone_can_reach_is_good(tmp_path: Path, mode: int) -> None:
    check_private(key_file(tmp_path, mode), "the key")


def test_a_signing_key_may_be_shared_with_a_group_that_reads_it(tmp_path: Path) -> None:
    check_private(key_file(tmp_path, 0o640), "the key", is_shared=True)
    for mode in (0o660, 0o644, 0o604):
        with pytest.raises(UnsafeFile, match=f"has mode 0{mode:o}"):
            check_private(key_file(tmp_path, mode), "the key", is_shared=True)


@as_root
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    path = key_file(tmp_path, 0o600)
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(UnsafeFile, match="belongs to nobody and not to root: chown root"):
        check_private(path, "the key")


def data_directory(path: Path) -> Path:
    (path / "pki").mkdir(parents=True)
    for name in ("state.db", "state.db-wal", "token", "kubeconfig", "pki/ca.key", "pki/sa.key"):
        (path / name).write_text("secret")
        (path / name).chmod(0o666)
    return path


def test_the_modes_of_a_data_directory_are_repaired(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = data_directory(tmp_path / "data")
    directory.chmod(0o777)
    (directory / "pki").chmod(0o777)
    check_data_directory(directory)
    modes = {
        path.relative_to(directory): path.stat().st_mode & 0o777 for path in directory.rglob("*") if path.is_file()
    }
    assert set(modes.values()) == {0o600}
    assert (directory.stat().st_mode & 0o777, (directory / "pki").stat().st_mode & 0o777) == (0o755, 0o755)
    assert f"{directory} had mode 0777 and now has 0755" in caplog.text
    caplog.clear()
    check_data_directory(directory)
    assert "had mode" not in caplog.text


@pytest.mark.parametrize("mode,is_reported", [(0o777, True), (0o1777, False), (0o775, False)])
def test_a_parent_that_all_users_may_write_to_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, is_reported: bool
) -> None:
    directory = data_directory(tmp_path / "parent" / "data")
    directory.parent.chmod(mode)
    check_data_directory(directory)
    assert (f"since they may write to {directory.parent}" in caplog.text) is is_reported


def test_a_directory_that_all_users_share_is_no_data_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(UnsafeFile, match="is shared by all users; choose another --data-dir"):
        check_data_directory(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


@as_root
@pytest.mark.parametrize("part", ["", "state.db", "pki", "pki/ca.key"])
def test_a_part_of_another_user_is_refused(tmp_path: Path, part: str) -> None:
    directory = data_directory(tmp_path / "data")
    os.chown(directory / part, NOBODY, NOBODY)
    with pytest.raises(UnsafeFile, match=f"{directory / part}, which belongs to nobody and not to root: chown root"):
        check_data_directory(directory)


@as_root
def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    directory = data_directory(tmp_path / "data")
    (directory / "token").unlink()
    (directory / "token").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("mine")
    check_data_directory(directory)
    os.chown(directory / "token", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(UnsafeFile, match="belongs to nobody"):
        check_data_directory(directory)


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    directory = data_directory(tmp_path / "data")
    (directory / "token").unlink()
    (directory / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFile, match="is missing; restore it or remove the link"):
        check_data_directory(directory)


@pytest.mark.parametrize("umask", ["000", "777"])
def test_the_umask_of_the_shell_does_not_matter(tmp_path: Path, umask: str) -> None:
    """Nothing is open to others, and nothing is closed to the server itself."""
    directory = tmp_path / "data"
    command = [sys.executable, "-m", "pinnace.cli.main", "up", "--port", "0", "--no-node", "--data-dir", str(directory)]
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])}
    process = subprocess.Popen(
        ["sh", "-c", f'umask {umask}; exec "$@"', "sh", *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "is ready at" in line:
                break
        else:
            raise AssertionError("".join(lines))
    finally:
        process.terminate()
        process.communicate(timeout=60)
    for path in (directory, *directory.rglob("*")):
        mode = path.stat().st_mode
        assert mode & 0o077 == 0, f"{path}: {mode:o}"
        assert mode & 0o400, f"{path}: {mode:o}"
