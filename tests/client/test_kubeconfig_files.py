"""The kubeconfig: what is in it, and that merging never harms what a user already has."""

from __future__ import annotations

import base64
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.clients.kubectl_command import kubectl_binary

from pinnace.client.kubeconfig import files_of
from pinnace.client.kubeconfig_files import (
    ClusterAccess,
    KubeconfigWriteError,
    kubeconfig_of,
    merge,
    write,
)

ACCESS = ClusterAccess(
    server="https://127.0.0.1:6443", ca=b"the CA", client_certificate=b"the certificate", client_key=b"the key"
)

OTHERS = """\
apiVersion: v1
kind: Config
current-context: work
preferences: {colors: true}
extensions:
- name: ours
  extension: {version: 7}
clusters:
- name: work
  cluster:
    server: https://work.example
    certificate-authority: /etc/work/ca.crt
    proxy-url: http://proxy.example
    some-future-field: [1, 2]
users:
- name: me
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: get-token, env: null}
contexts:
- name: work
  context: {cluster: work, user: me, namespace: team}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def without(config: Any, name: str) -> Any:
    """The config as it would be had `name` never been added."""
    rest = dict(config)
    for section in ("clusters", "users", "contexts"):
        rest[section] = [entry for entry in config[section] if entry["name"] != name]
    return rest


def names(config: Any) -> dict[str, list[str]]:
    return {section: [e["name"] for e in config[section]] for section in ("clusters", "users", "contexts")}


def test_a_kubeconfig_says_where_and_who() -> None:
    config = kubeconfig_of(ACCESS)
    assert config["clusters"] == [
        {
            "name": "pinnace",
            "cluster": {
                "server": "https://127.0.0.1:6443",
                "certificate-authority-data": base64.b64encode(b"the CA").decode(),
            },
        }
    ]
    assert config["users"] == [
        {
            "name": "pinnace",
            "user": {
                "client-certificate-data": base64.b64encode(b"the certificate").decode(),
                "client-key-data": base64.b64encode(b"the key").decode(),
            },
        }
    ]
    assert config["contexts"] == [{"name": "pinnace", "context": {"cluster": "pinnace", "user": "pinnace"}}]
    assert config["current-context"] == "pinnace"


def test_a_token_and_a_namespace_are_written_if_given() -> None:
    config = kubeconfig_of(ClusterAccess(server="https://a", ca=b"", token="secret", namespace="team", name="mine"))
    assert config["users"] == [{"name": "mine", "user": {"token": "secret"}}]
    assert config["contexts"] == [{"name": "mine", "context": {"cluster": "mine", "user": "mine", "namespace": "team"}}]


def test_writing_makes_a_file_for_its_owner_only_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config"
    write(path, ACCESS)
    write(path, ACCESS)
    assert read(path) == kubeconfig_of(ACCESS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["config"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"KUBECONFIG": "/a:/b", "HOME": "/home/me"}, "/a"),
        ({"KUBECONFIG": ":/b", "HOME": "/home/me"}, "/b"),
        ({"KUBECONFIG": "", "HOME": "/home/me"}, "/home/me/.kube/config"),
        ({"HOME": "/home/me"}, "/home/me/.kube/config"),
    ],
)
def test_the_users_kubeconfig_is_the_one_that_kubectl_changes(environment: dict[str, str], expected: str) -> None:
    assert files_of(environment)[0] == Path(expected)


@pytest.mark.parametrize("content", [None, "", "# only a comment\n", "apiVersion: v1\nkind: Config\nclusters: null\n"])
def test_merging_into_nothing_makes_a_kubeconfig(path: Path, content: str | None) -> None:
    if content is not None:
        path.write_text(content)
    merge(path, ACCESS)
    config = read(path)
    assert {**config, "preferences": {}} == kubeconfig_of(ACCESS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_merging_preserves_everything_else(path: Path) -> None:
    path.write_text(OTHERS)
    merge(path, ACCESS)
    config = read(path)
    assert without(config, "pinnace") == yaml.safe_load(OTHERS)
    assert names(config) == {
        "clusters": ["work", "pinnace"],
        "users": ["me", "pinnace"],
        "contexts": ["work", "pinnace"],
    }
    assert config["current-context"] == "work"


def test_text_that_looks_like_something_else_stays_text(path: Path) -> None:
    path.write_text("extensions: [{when: 2024-01-01T00:00:00Z, at: 12:30, id: 0123, count: 7, part: 1.5, on: true}]\n")
    merge(path, ACCESS)
    (extension,) = read(path)["extensions"]
    expected = {"when": "2024-01-01T00:00:00Z", "at": "12:30", "id": "0123", "count": 7, "part": 1.5, True: True}
    assert extension == expected


def test_the_current_context_changes_only_if_asked(path: Path) -> None:
    path.write_text(OTHERS)
    merge(path, ACCESS, use=True)
    assert read(path)["current-context"] == "pinnace"


def test_an_entry_of_ours_is_brought_up_to_date_and_keeps_what_the_user_added(path: Path) -> None:
    path.write_text(OTHERS)
    merge(path, ClusterAccess(server="https://127.0.0.1:1", ca=b"the CA", token="old"))
    config = read(path)
    config["contexts"][1]["context"]["namespace"] = "mine"
    config["clusters"][1]["cluster"]["tls-server-name"] = "kubernetes"
    path.write_text(yaml.safe_dump(config))
    merge(path, ACCESS)
    config = read(path)
    assert len(config["clusters"]) == 2
    assert config["clusters"][1]["cluster"]["server"] == ACCESS.server
    assert config["clusters"][1]["cluster"]["tls-server-name"] == "kubernetes"
    assert config["contexts"][1]["context"]["namespace"] == "mine"
    assert "token" not in config["users"][1]["user"]


def test_merging_twice_changes_nothing(path: Path) -> None:
    path.write_text(OTHERS)
    merge(path, ACCESS)
    before = (path.read_bytes(), path.stat().st_ino)
    merge(path, ACCESS)
    assert (path.read_bytes(), path.stat().st_ino) == before


CLUSTER = (
    "clusters: [{name: pinnace, cluster: {server: https://other.example, certificate-authority-data: b3RoZXI=}}]\n"
)
BROKEN = {
    "another cluster of the name": (CLUSTER, "another cluster named 'pinnace'"),
    "another user of the name": ("users: [{name: pinnace, user: {token: precious}}]\n", "user or context named"),
    "another context of the name": (
        "contexts: [{name: pinnace, context: {cluster: work, user: me}}]\n",
        "user or context named",
    ),
    "not YAML": ("clusters: [", "not valid YAML"),
    "a tab": ("a:\n\t- b\n", "not valid YAML"),
    "not a mapping": ("- a\n", "expected a mapping, found a list"),
    "a section that is no list": ("clusters: {a: b}\n", "clusters must be a list"),
    "an entry that is no mapping": ("users: [a]\n", "users must be a list"),
    "a cluster that is no mapping": ("clusters: [{name: pinnace, cluster: 3}]\n", "must be a mapping"),
    "something that would run": ("a: !!python/object/apply:os.getcwd []\n", "not valid YAML"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_cannot_be_merged_is_reported_and_left_unchanged(path: Path, content: str, message: str) -> None:
    path.write_text(content)
    with pytest.raises(KubeconfigWriteError, match=message):
        merge(path, ACCESS)
    assert path.read_text() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["config"]


def test_bytes_that_are_no_text_are_an_error(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00broken")
    with pytest.raises(KubeconfigWriteError, match="not valid YAML"):
        merge(path, ACCESS)
    assert path.read_bytes() == b"\xff\xfe\x00broken"


def test_a_directory_in_the_place_of_the_file_is_an_error(path: Path) -> None:
    path.mkdir()
    with pytest.raises(KubeconfigWriteError, match="cannot be read"):
        merge(path, ACCESS)


def test_a_link_stays_a_link(tmp_path: Path, path: Path) -> None:
    target = tmp_path / "dotfiles" / "config"
    target.parent.mkdir()
    target.write_text(OTHERS)
    path.symlink_to(target)
    merge(path, ACCESS)
    assert path.is_symlink()
    assert len(read(target)["clusters"]) == 2


def test_kubectl_reads_what_was_merged(path: Path) -> None:
    path.write_text(OTHERS)
    merge(path, ACCESS, use=True)
    command = [kubectl_binary(), "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]
    printed = subprocess.run(command, env={"KUBECONFIG": str(path)}, check=True, capture_output=True, text=True).stdout
    assert printed == ACCESS.server
