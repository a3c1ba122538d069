"""kubectl's flags override the kubeconfig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.client.credentials import Fixed, FromExecPlugin
from pinnace.client.kubeconfig import Access, KubeconfigError, Overrides, find_access_with

PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    config: dict[str, Any] = {
        "current-context": "home",
        "contexts": [
            {"name": "home", "context": {"cluster": "home", "user": "ann", "namespace": "garden"}},
            {"name": "work", "context": {"cluster": "work", "user": "robot"}},
        ],
        "clusters": [
            {"name": "home", "cluster": {"server": "https://home:6443"}},
            {"name": "work", "cluster": {"server": "https://work:6443", "certificate-authority-data": "QQ=="}},
        ],
        "users": [{"name": "ann", "user": {"token": "of ann"}}, {"name": "robot", "user": {"exec": PLUGIN}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def access(kubeconfig: Path, **message: Any) -> Access:
    return find_access_with(Overrides(**message), environment={"KUBECONFIG": str(kubeconfig)})


def authorization(actual: Access) -> str:
    assert isinstance(actual.credentials, Fixed)
    return actual.credentials.known.authorization


def test_without_flags_it_is_the_current_context(kubeconfig: Path) -> None:
    chosen = access(kubeconfig)
    assert (chosen.server, chosen.namespace, authorization(chosen)) == ("https://home:6443", "garden", "Bearer of ann")


def test_each_part_of_a_context_can_be_another(kubeconfig: Path) -> None:
    assert access(kubeconfig, context="work").server == "https://work:6443"
    assert isinstance(access(kubeconfig, user="robot").credentials, FromExecPlugin)
    chosen = access(kubeconfig, cluster="work", namespace="shop")
    assert (chosen.server, chosen.namespace, chosen.ca) == ("https://work:6443", "shop", b"A")
    assert authorization(chosen) == "Bearer of ann"


def test_a_server_a_token_and_an_authority_can_be_set(kubeconfig: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"an authority")
    authority = tmp_path / "ca.crt"
    chosen = access(
        kubeconfig, context="work", server="https://other:1/", token="mine", certificate_authority=authority
    )
    assert (chosen.server, authorization(chosen), chosen.ca) == ("https://other:1", "Bearer mine", b"an authority")
    assert access(kubeconfig, insecure_skip_tls_verify=True).insecure
    assert access(kubeconfig, tls_server_name="kubernetes").server_name == "kubernetes"


def test_one_may_act_as_another(kubeconfig: Path) -> None:
    chosen = access(kubeconfig, as_="bob", as_group=("staff", "night"), as_uid="7")
    assert chosen.headers == (
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "staff"),
        ("Impersonate-Group", "night"),
    )


def test_a_server_needs_no_kubeconfig(tmp_path: Path) -> None:
    chosen = find_access_with(
        Overrides(server="https://x:1", token="t"), environment={"KUBECONFIG": str(tmp_path / "no")}
    )
    assert (chosen.server, chosen.namespace) == ("https://x:1", "default")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"context": "moon"}, "no context 'moon'; it has: home, work"),
        ({"cluster": "moon"}, "no cluster 'moon'; it has: home, work"),
        ({"user": "moon"}, "no user 'moon'; it has: ann, robot"),
        ({"certificate_authority": Path("/moon")}, "certificate-authority of the kubeconfig cannot be read"),
    ],
    ids=["context", "cluster", "user", "authority"],
)
def test_a_missing_entry_is_named(kubeconfig: Path, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(KubeconfigError, match=message):
        access(kubeconfig, **overrides)


def test_nothing_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="no kubeconfig with a context was found"):
        find_access_with(Overrides(), environment={"KUBECONFIG": str(tmp_path / "no")})
