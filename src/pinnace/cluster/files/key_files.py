"""Certificates and keys that the user brings, in the places of the cluster's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificates

from pinnace.auth.certificates.authority import CertificateError, CertificateFiles, PairFiles
from pinnace.cluster.settings import KeyFiles


def use_key_files(files: CertificateFiles, given: KeyFiles, directory: Path) -> CertificateFiles:
    """Return the files with the given ones in their places. Raise CertificateError for half a pair or a bad CA.

    The cluster's own CA still authenticates users: the administrator of the kubeconfig has a certificate of it.
    """
    if (given.certificate is None) != (given.key is None):
        raise CertificateError(
            "a serving certificate needs its key: give both --tls-cert-file and --tls-private-key-file"
        )
    if given.certificate is not None and given.key is not None:
        _check_readable(given.certificate)
        _check_readable(given.key)
        files = replace(files, server=PairFiles(given.certificate, given.key), serving_ca=given.certificate)
    if given.signing_key is not None:
        files = replace(files, token_key=given.signing_key)
    if given.client_ca is not None:
        bundle = directory / "client-ca-bundle.crt"
        bundle.write_bytes(_read_certificates(given.client_ca) + b"\n" + files.ca.certificate.read_bytes())
        files = replace(files, client_ca_bundle=bundle)
    return files


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read ({error.strerror})") from None


def _read_certificates(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        load_pem_x509_certificates(data)
    except (OSError, ValueError) as error:
        raise CertificateError(f"{path} is not a file of CA certificates ({error}); expected PEM") from None
    return data
