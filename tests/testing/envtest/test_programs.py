"""The programs of `pinnace envtest`, started as envtest starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.free_ports import free_port
from tests.testing.envtest.suite import ApiServer, api_server, etcd, has_flag, prepare_certificates
from tests.waiting import until

from pinnace.testing.envtest import launcher
from pinnace.testing.envtest.folder import write_folder

SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("store"), "1.36")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    prepare_certificates(directory)
    return directory


@pytest.fixture(scope="module")
def etcd_port(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    with etcd(folder, tmp_path_factory.mktemp("data"), port):
        yield port


@pytest.fixture(scope="module")
def server(folder: Path, certificates: Path, etcd_port: int) -> Iterator[ApiServer]:
    with api_server(folder, certificates, etcd_port) as started:
        yield started


def test_help_names_the_flags_that_envtest_looks_for(folder: Path) -> None:
    assert has_flag(folder / "etcd", "unsafe-no-fsync")
    assert has_flag(folder / "kube-apiserver", "service-cluster-ip-range")
    assert not has_flag(folder / "kube-apiserver", "insecure-port")


def test_the_folder_has_the_name_that_setup_envtest_gives(folder: Path) -> None:
    assert folder.name.startswith("1.36.0-linux-") or folder.name.startswith("1.36.0-darwin-")
    assert sorted(path.name for path in folder.iterdir()) == ["etcd", "kube-apiserver", "kubectl"]


def test_the_folders_name_chooses_the_minor(server: ApiServer) -> None:
    assert server.call("GET", "/version")[1]["minor"] == "36"


def test_a_user_of_the_given_client_ca_is_the_user_of_the_certificate(server: ApiServer) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    status, result = server.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert (status, result["status"]["userInfo"]["username"]) == (201, "default")
    assert "system:masters" in result["status"]["userInfo"]["groups"]


def test_services_have_addresses_of_the_given_range(server: ApiServer) -> None:
    assert server.call("GET", "/api/v1/namespaces/default/services/kubernetes")[1]["spec"]["clusterIP"] == "10.0.0.1"
    web = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    status, made = server.call("POST", "/api/v1/namespaces/default/services", web)
    assert status == 201
    assert made["spec"]["clusterIP"].startswith("10.0.0.")


def test_a_pod_needs_no_service_account_when_the_plugin_is_disabled(server: ApiServer) -> None:
    spec = {"containers": [{"name": "a", "image": "a"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    assert server.call("POST", "/api/v1/namespaces/default/pods", pod)[0] == 201


def test_tokens_are_signed_with_the_given_rsa_key(server: ApiServer) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    assert server.call("POST", accounts, account)[0] == 201
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    status, made = server.call("POST", f"{accounts}/robot/token", request)
    assert status == 201
    status, refused = server.call("GET", "/api/v1/secrets", token=made["status"]["token"])
    assert status == 403
    assert "system:serviceaccount:default:robot" in refused["message"]
    assert server.call("GET", "/openid/v1/jwks")[1]["keys"][0]["kty"] == "RSA"
    issuer = server.call("GET", "/.well-known/openid-configuration")[1]["issuer"]
    assert issuer == f"https://127.0.0.1:{server.port}/"


def test_a_second_server_over_the_same_etcd_shares_the_data(
    folder: Path, certificates: Path, etcd_port: int, server: ApiServer
) -> None:
    assert server.call("POST", CONFIG_MAPS, SETTINGS)[0] == 201
    with api_server(folder, certificates, etcd_port) as second:
        status, result = second.call("GET", f"{CONFIG_MAPS}/settings")
        assert (status, result["data"]) == (200, {"a": "b"})
        assert second.call("DELETE", f"{CONFIG_MAPS}/settings")[0] == 200
    assert server.call("GET", f"{CONFIG_MAPS}/settings")[0] == 404


def test_a_server_with_another_prefix_shares_nothing(
    folder: Path, certificates: Path, etcd_port: int, server: ApiServer
) -> None:
    other = {**SETTINGS, "metadata": {"name": "first-prefix"}}
    assert server.call("POST", CONFIG_MAPS, other)[0] == 201
    with api_server(folder, certificates, etcd_port, "--etcd-prefix=/other") as second:
        assert second.call("GET", f"{CONFIG_MAPS}/first-prefix")[0] == 404


def test_controllers_run_if_the_environment_says_so(
    folder: Path, certificates: Path, etcd_port: int, tmp_path: Path
) -> None:
    env = {**os.environ, "PINNACE_CONTROLLERS": "1"}
    with api_server(folder, certificates, etcd_port, "--etcd-prefix=/controlled", env=env) as server:
        path = "/api/v1/namespaces/default/serviceaccounts?watch=true&fieldSelector=metadata.name%3Ddefault"
        status, event = server.call("GET", path)
        assert (status, event["object"]["metadata"]["name"]) == (200, "default")


def test_data_survives_a_clean_restart(folder: Path, certificates: Path, tmp_path: Path) -> None:
    port = free_port()
    with etcd(folder, tmp_path, port), api_server(folder, certificates, port) as server:
        made = server.call("POST", CONFIG_MAPS, SETTINGS)[1]
    with etcd(folder, tmp_path, port), api_server(folder, certificates, port) as server:
        assert server.call("GET", f"{CONFIG_MAPS}/settings")[1]["metadata"] == made["metadata"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--secure-port=0"], "--etcd-servers is missing"),
        (["--etcd-servers=http://localhost"], "expected an address with a port"),
    ],
    ids=["no etcd", "no port"],
)
def test_a_server_without_its_etcd_says_what_to_start(folder: Path, args: list[str], message: str) -> None:
    ended = subprocess.run([folder / "kube-apiserver", *args], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert message in ended.stderr


def test_a_server_gives_up_when_no_etcd_listens(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launcher, "ETCD_SECONDS", 0.0)
    assert launcher.main(str(folder / "kube-apiserver"), ["--etcd-servers=http://127.0.0.1:1"]) == 1
    assert "no etcd program of pinnace listens on port 1; start " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        (
            "--secure-prot=1",
            "unknown flag --secure-prot of kube-apiserver (did you mean --secure-port?); supported are",
        ),
        ("--authorization-mode=ABAC", "authorization mode 'ABAC' is unknown"),
        ("--enable-admission-plugins=Nonsense", 'enable-admission-plugins plugin "Nonsense" is unknown'),
        ("--service-cluster-ip-range=10.0.0.1/24", "--service-cluster-ip-range=10.0.0.1/24"),
        ("--client-ca-file=/dev/null", "/dev/null is not a file of CA certificates"),
        ("--service-account-signing-key-file=/dev/null", "/dev/null is not a usable signing key"),
        ("--tls-cert-file=/dev/null", "--tls-private-key-file"),
        ("--request-timeout=soon", "expected a duration"),
        ("--feature-gates=Nonsense=true", "--feature-gates=Nonsense=true: unrecognized feature gate: Nonsense"),
        ("--runtime-config=apps/v7=true", "group version apps/v7 that has not been registered"),
        ("--max-requests-inflight", "--max-requests-inflight needs a value"),
    ],
)
def test_a_bad_flag_is_a_clear_error(folder: Path, etcd_port: int, arg: str, message: str) -> None:
    command = [str(folder / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{etcd_port}", "--secure-port=0", arg]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert message in ended.stderr


def test_a_killed_server_leaves_its_port_and_the_data(folder: Path, certificates: Path, tmp_path: Path) -> None:
    port = free_port()
    with etcd(folder, tmp_path, port):
        with pytest.raises(AssertionError), api_server(folder, certificates, port) as server:
            status, _ = server.call("POST", CONFIG_MAPS, SETTINGS)
            server.process.kill()
        assert status == 201
        until(lambda: not _listens(server.port))  # Until then the pages of the killed one answer for the next.
        with api_server(folder, certificates, port, port=server.port) as again:
            assert again.call("GET", f"{CONFIG_MAPS}/settings")[0] == 200


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_command_prints_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pinnace.cli.main", "envtest", "--bin-dir", str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert (Path(printed) / "kube-apiserver").is_file()
    refused = subprocess.run([*command, "--kubernetes-version", "1.2"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "cannot be served" in refused.stderr
