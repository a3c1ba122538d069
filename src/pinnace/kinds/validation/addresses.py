"""Parse and check IP addresses and CIDRs as Kubernetes does: errors and warnings.

Old Go versions read 010.0.0.1 as 10.0.0.1. `sloppy_ip` accepts such text, so that the error can name the leading zeros.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from pinnace.model.field_errors import FieldError, invalid
from pinnace.process.work_slices import give_way

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NOT_AN_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NOT_A_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
NO_ADDRESSES: tuple[str, ...] = ()

_LINK_LOCAL_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))
_leading_zeros = re.compile(r"(?<![0-9a-fA-F:.])0+(?=[0-9])|(?<=\.)0+(?=[0-9])").sub


def sloppy_ip(text: str) -> Address | None:
    """Parse an address, allowing leading zeros; an IPv4-mapped IPv6 address is returned as IPv4. None if it is not an
    address."""
    give_way()
    address = strict_ip(text)
    if address is None and "." in text:
        address = strict_ip(_leading_zeros("", text))
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def sloppy_cidr(text: str) -> tuple[Address, Network] | None:
    """Return the address as written, and its network."""
    written, slash, bits = text.partition("/")
    address = sloppy_ip(written)
    if address is None or not slash or not bits.isascii() or not bits.isdigit() or len(bits) > 6:
        return None
    length = int(bits)
    if ":" in written and address.version == 4:
        length -= 96
    if not 0 <= length <= address.max_prefixlen:
        return None
    return address, ip_network(f"{address}/{length}", strict=False)


def validate_ip(text: str, path: str, allowed: Collection[str] = NO_ADDRESSES) -> Iterator[FieldError]:
    """Check an address; `allowed` are stored addresses, which stay valid."""
    if text in allowed:
        return
    address = strict_ip(text)
    if address is None:
        yield invalid(path, text, NOT_AN_IP if sloppy_ip(text) is None else "must not have leading 0s")
    elif isinstance(address, IPv6Address) and address.ipv4_mapped:
        yield invalid(path, text, "must not be an IPv4-mapped IPv6 address")


def validate_canonical_ip(text: str, path: str) -> Iterator[FieldError]:
    """Check an address that must be in canonical form, because it is a name."""
    errs = list(validate_ip(text, path))
    yield from errs
    address = sloppy_ip(text)
    if not errs and text != str(address):
        yield invalid(path, text, f'must be in canonical form ("{address}")')


def validate_cidr(text: str, path: str, allowed: Collection[str] = NO_ADDRESSES) -> Iterator[FieldError]:
    if text in allowed:
        return
    parsed = sloppy_cidr(text)
    if parsed is None:
        yield invalid(path, text, NOT_A_CIDR)
        return
    written, _, bits = text.partition("/")
    address = strict_ip(written)
    if address is None or bits != str(int(bits)):
        yield invalid(path, text, "must not have leading 0s in IP or prefix length")
    elif isinstance(address, IPv6Address) and address.ipv4_mapped:
        yield invalid(path, text, "must not have an IPv4-mapped IPv6 address")
    elif parsed[0] != parsed[1].network_address:
        yield invalid(path, text, "must not have bits set beyond the prefix length")


def validate_canonical_cidr(text: str, path: str) -> Iterator[FieldError]:
    errs = list(validate_cidr(text, path))
    yield from errs
    parsed = sloppy_cidr(text)
    if not errs and parsed and text != str(parsed[1]):
        yield invalid(path, text, f'must be in canonical form ("{parsed[1]}")')


def validate_endpoint_ip(text: str, path: str) -> Iterator[FieldError]:
    """Check an address that receives traffic: not unspecified, loopback or link-local."""
    address = sloppy_ip(text)
    if address is None:
        yield invalid(path, text, "must be a valid IP address")
        return
    if address.is_unspecified:
        yield invalid(path, text, f"may not be unspecified ({text})")
    if address.is_loopback:
        yield invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        yield invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(address in network for network in _LINK_LOCAL_MULTICAST):
        yield invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


def ip_warnings(text: str, path: str) -> Iterator[str]:
    sloppy, address = sloppy_ip(text), strict_ip(text)
    if sloppy is None:
        return
    if address is None or (isinstance(address, IPv6Address) and address.ipv4_mapped):
        yield f'{path}: non-standard IP address "{text}" is invalid: use "{sloppy}"'
    elif address.version == 6 and str(address) != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")'


def cidr_warnings(text: str, path: str) -> Iterator[str]:
    parsed = sloppy_cidr(text)
    if parsed is None:
        return
    address, network = parsed
    is_clean = True
    if address != network.network_address:
        is_clean = False
        single = f"{address}/{address.max_prefixlen}"
        yield f'{path}: CIDR value "{text}" is ambiguous in this context (should be "{network}" or "{single}"?)'
    written, _, bits = text.partition("/")
    strict = strict_ip(written)
    if strict is None or bits != str(int(bits)) or (isinstance(strict, IPv6Address) and strict.ipv4_mapped):
        is_clean = False
        yield f'{path}: non-standard CIDR value "{text}" is invalid: use "{network}"'
    if is_clean and address.version == 6 and str(network) != text:
        yield f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")'


def is_address(text: str) -> bool:
    """Return whether the text is an IP address in its standard form, with or without a zone."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_ipv6(text: str) -> bool:
    address = sloppy_ip(text)
    return address is not None and address.version == 6


def strict_ip(text: str) -> Address | None:
    try:
        return ip_address(text) if "%" not in text else None
    except ValueError:
        return None
