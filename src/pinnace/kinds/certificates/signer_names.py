"""The names of signers, and of the trust bundles that belong to them."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, required, too_long

MAX_SIGNER_NAME = 253 + 253 + 63 + 1 + 1


def validate_signer_name(name: str, path: str) -> Iterator[FieldError]:
    """Check a signer name: a domain of at least two labels, a slash, and a path."""
    if not name:
        yield required(path)
        return
    parts = name.split("/")
    if len(parts) != 2:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, detail)
        return
    domain, rest = parts
    if len(domain) > 253:
        yield too_long(path, 253)
    yield from _validate_part(domain, names.dns_label, path)
    if "." not in domain:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    yield from _validate_part(rest, names.dns_subdomain, path)
    if len(name) > MAX_SIGNER_NAME:
        yield too_long(path, MAX_SIGNER_NAME)


def _validate_part(part: str, rule: names.NameRule, path: str) -> Iterator[FieldError]:
    """Return the errors of the first invalid label only: those of the others would be the same."""
    for label in part.split("."):
        if errs := rule(label):
            yield from (invalid(path, part, f'validating label "{label}": {err}') for err in errs)
            return


def trust_bundle_name_errors(name: str, signer: str) -> list[str]:
    """Return why this is no name for a trust bundle of a signer; without a signer, of a bundle that has none."""
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return list(names.dns_subdomain(name))
    prefix = signer.replace("/", ":") + ":"
    if not name.startswith(prefix):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"]
    return list(names.dns_subdomain(name.removeprefix(prefix)))


def longest_lifetime(signer: str) -> int:
    """Return the most seconds for which a signer may issue certificates to pods."""
    domain = signer.partition("/")[0]
    return 86400 if domain == "kubernetes.io" or domain.endswith(".kubernetes.io") else 91 * 86400
