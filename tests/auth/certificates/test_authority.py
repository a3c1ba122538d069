"""The cluster's certificates: what is in them, how they are kept, and when they are made anew."""

from __future__ import annotations

import ipaddress
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pinnace.auth.certificates.authority import (
    SERVER_NAMES,
    CertificateError,
    CertificateFiles,
    PairFiles,
    ensure_certificates,
    issue,
    load_key,
    load_pair,
    new_ca,
)

FRONT_PROXY = ["front-proxy-ca.crt", "front-proxy-ca.key", "front-proxy-client.crt", "front-proxy-client.key"]
EVERY_FILE = ["admin.crt", "admin.key", "apiserver.crt", "apiserver.key", "ca.crt", "ca.key"]
EVERY_FILE += [*FRONT_PROXY, "sa.key", "sa.pub"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "pki"


@pytest.fixture
def files(directory: Path) -> CertificateFiles:
    return ensure_certificates(directory)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def values(name: x509.Name, oid: x509.ObjectIdentifier) -> list[str | bytes]:
    return [attribute.value for attribute in name.get_attributes_for_oid(oid)]


def test_everything_is_made_and_only_its_owner_may_read_it(files: CertificateFiles, directory: Path) -> None:
    assert sorted(contents(directory)) == EVERY_FILE
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_the_server_certificate_names_every_way_to_reach_the_server(files: CertificateFiles) -> None:
    certificate = load_pair(files.server).certificate
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    result = {str(name) for name in names.get_values_for_type(x509.IPAddress)} | set(
        names.get_values_for_type(x509.DNSName)
    )
    assert result == set(SERVER_NAMES)
    assert ipaddress.ip_address("10.96.0.1") in names.get_values_for_type(x509.IPAddress)
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]
    certificate.verify_directly_issued_by(load_pair(files.ca).certificate)


def test_the_administrator_is_a_member_of_system_masters(files: CertificateFiles) -> None:
    certificate = load_pair(files.admin).certificate
    assert values(certificate.subject, NameOID.COMMON_NAME) == ["kubernetes-admin"]
    assert values(certificate.subject, NameOID.ORGANIZATION_NAME) == ["system:masters"]
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate.verify_directly_issued_by(load_pair(files.ca).certificate)


def test_proxies_have_an_authority_of_their_own(files: CertificateFiles) -> None:
    proxy = load_pair(files.front_proxy_client).certificate
    proxy.verify_directly_issued_by(load_pair(files.front_proxy_ca).certificate)
    with pytest.raises(ValueError):
        proxy.verify_directly_issued_by(load_pair(files.ca).certificate)


def test_existing_certificates_are_kept(files: CertificateFiles, directory: Path) -> None:
    before = contents(directory)
    assert ensure_certificates(directory) == files
    assert contents(directory) == before


def test_certificates_that_expire_within_thirty_days_are_renewed_by_the_same_authority(
    files: CertificateFiles, directory: Path
) -> None:
    before = contents(directory)
    day = datetime.now(UTC)
    ensure_certificates(directory, now=day + timedelta(days=334))
    assert contents(directory) == before
    ensure_certificates(directory, now=day + timedelta(days=336))
    after = contents(directory)
    assert {name for name in after if after[name] != before[name]} == {
        "admin.crt",
        "admin.key",
        "apiserver.crt",
        "apiserver.key",
        "front-proxy-client.crt",
        "front-proxy-client.key",
    }


def test_a_new_authority_signs_everything_anew_and_the_token_key_stays(
    files: CertificateFiles, directory: Path
) -> None:
    before = contents(directory)
    ensure_certificates(directory, now=datetime.now(UTC) + timedelta(days=3640))
    after = contents(directory)
    assert {name for name in after if after[name] == before[name]} == {"sa.key", "sa.pub"}
    load_pair(files.admin).certificate.verify_directly_issued_by(load_pair(files.ca).certificate)


def test_a_new_name_of_the_server_makes_its_certificate_anew(files: CertificateFiles, directory: Path) -> None:
    before = contents(directory)
    ensure_certificates(directory, server_names=[*SERVER_NAMES, "box.example"])
    after = contents(directory)
    assert {name for name in after if after[name] != before[name]} == {"apiserver.crt", "apiserver.key"}


@pytest.mark.parametrize("missing", EVERY_FILE)
def test_a_missing_file_is_made_again(files: CertificateFiles, directory: Path, missing: str) -> None:
    (directory / missing).unlink()
    ensure_certificates(directory)
    assert sorted(contents(directory)) == EVERY_FILE
    load_pair(files.server).certificate.verify_directly_issued_by(load_pair(files.ca).certificate)
    load_pair(files.admin).certificate.verify_directly_issued_by(load_pair(files.ca).certificate)


@pytest.mark.parametrize("broken", [name for name in EVERY_FILE if name != "sa.pub"])
@pytest.mark.parametrize(
    "content", [b"", b"not PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_broken_file_is_named_and_left_alone(
    files: CertificateFiles, directory: Path, broken: str, content: bytes
) -> None:
    (directory / broken).write_bytes(content)
    before = contents(directory)
    with pytest.raises(CertificateError, match=rf"{broken}.*remove it to have it made anew"):
        ensure_certificates(directory)
    assert contents(directory) == before


def test_a_key_of_another_certificate_is_an_error(files: CertificateFiles, directory: Path) -> None:
    files.admin.key.write_bytes(files.server.key.read_bytes())
    with pytest.raises(CertificateError, match=r"admin\.key is not the key of .*admin\.crt"):
        ensure_certificates(directory)


def test_a_damaged_public_token_key_follows_from_the_private_one(files: CertificateFiles, directory: Path) -> None:
    before = files.token_public_key.read_bytes()
    files.token_public_key.write_bytes(b"damaged")
    ensure_certificates(directory)
    assert files.token_public_key.read_bytes() == before
    assert load_key(files.token_key)


def test_a_pair_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="are not there"):
        load_pair(PairFiles(tmp_path / "a.crt", tmp_path / "a.key"))


def test_a_certificate_never_outlives_its_authority() -> None:
    ca = new_ca()
    pair = issue(ca, common_name="late", client=True, lifetime=timedelta(days=9999))
    assert pair.certificate.not_valid_after_utc <= ca.certificate.not_valid_after_utc


def test_a_certificate_good_for_nothing_is_not_issued() -> None:
    with pytest.raises(ValueError, match="good for nothing"):
        issue(new_ca(), common_name="jane")
