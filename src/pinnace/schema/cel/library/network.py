"""Kubernetes' network values in CEL: ip(), cidr() and url()."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import parse_qs, quote, unquote

from pinnace.schema.cel.errors import CelError, NoSuchOverload
from pinnace.schema.cel.overloads import function, library, member, overload
from pinnace.schema.cel.types import BOOL, INT, STRING, list_of, map_of, object_type, opaque

IP = opaque("net.IP")
CIDR = opaque("net.CIDR")
URL = object_type("kubernetes.URL")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Ip:
    address: _Address
    TYPE_NAME: ClassVar[str] = "net.IP"

    @property
    def width(self) -> int:
        """The size in bytes."""
        return self.address.max_prefixlen // 8


@dataclass(frozen=True, slots=True)
class Cidr:
    """A prefix; its address may have bits set beyond the prefix."""

    address: _Address
    bits: int
    TYPE_NAME: ClassVar[str] = "net.CIDR"

    @property
    def width(self) -> int:
        return (self.bits + 7) // 8

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network((self.address, self.bits), strict=False)


def _parse_address(text: str) -> _Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        err = f'ParseAddr("{text}"): {_check_address(text)}'
        raise CelError(f'IP Address "{text}" parse error during conversion from string: {err}') from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise CelError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped is not None:
            raise CelError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def _check_address(text: str) -> str:
    """Return the first error that Go finds, from left to right."""
    if ":" in text:
        return "each colon-separated field must have at least one digit"
    if "." not in text:
        return "unable to parse IP"
    field = ""
    for at, character in enumerate(text):
        if character == ".":
            if not field or at == len(text) - 1:
                return f'IPv4 field must have at least one digit (at "{text[at:]}")'
            if text.count(".", 0, at) == 3:
                return "IPv4 address too long"
            field = ""
        elif character not in "0123456789":
            return f'unexpected character (at "{text[at:]}")'
        elif field == "0":
            return "IPv4 field has octet with leading zero"
        else:
            field += character
            if int(field) > 255:
                return "IPv4 field has value >255"
    return "IPv4 address too short"


def _ip(text: str) -> Ip:
    return Ip(_parse_address(text))


def _is_ip(text: str) -> bool:
    try:
        _parse_address(text)
    except CelError:
        return False
    return True


def _is_global_unicast(ip: Ip) -> bool:
    address = ip.address
    is_broadcast = address == ipaddress.IPv4Address("255.255.255.255")
    return not (
        is_broadcast
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or _is_link_local_unicast(ip)
    )


def _is_link_local_unicast(ip: Ip) -> bool:
    return ip.address in ipaddress.ip_network("169.254.0.0/16" if ip.address.version == 4 else "fe80::/10")


def _is_link_local_multicast(ip: Ip) -> bool:
    packed = ip.address.packed
    if ip.address.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 2


_CIDR_ERROR = "network address parse error during conversion from string: "


def _cidr(text: str) -> Cidr:
    try:
        return _parse_cidr(text)
    except ValueError as error:
        raise CelError(f"{_CIDR_ERROR}{error}") from None


def _parse_cidr(text: str) -> Cidr:
    head, slash, bits = text.rpartition("/")
    if not slash:
        raise ValueError(f"{_CIDR_ERROR}netip.ParsePrefix(\"{text}\"): no '/'")
    try:
        address = ipaddress.ip_address(head)
    except ValueError:
        err = f'ParseAddr("{head}"): {_check_address(head)}'
        raise ValueError(f'{_CIDR_ERROR}netip.ParsePrefix("{text}"): {err}') from None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise ValueError(f'{_CIDR_ERROR}netip.ParsePrefix("{text}"): IPv6 zones cannot be present in a prefix')
    if re.fullmatch("0|[1-9][0-9]{0,2}", bits) is None:
        raise ValueError(f'{_CIDR_ERROR}netip.ParsePrefix("{text}"): bad bits after slash: "{bits}"')
    if int(bits) > address.max_prefixlen:
        raise ValueError(f'{_CIDR_ERROR}netip.ParsePrefix("{text}"): prefix length out of range')
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return Cidr(address, int(bits))


def _is_cidr(text: str) -> bool:
    try:
        _parse_cidr(text)
    except ValueError:
        return False
    return True


def _contains_ip(cidr: Cidr, ip: Ip) -> bool:
    return ip.address.version == cidr.address.version and ip.address in cidr.network


def _contains_cidr(cidr: Cidr, other: Cidr) -> bool:
    if cidr.address.version != other.address.version or cidr.bits > other.bits:
        return False
    return other.address in cidr.network


def _contains_ip_text(cidr: Cidr, text: str) -> bool:
    if not _is_ip(text):
        raise NoSuchOverload
    return _contains_ip(cidr, _ip(text))


def _contains_cidr_text(cidr: Cidr, text: str) -> bool:
    return _contains_cidr(cidr, _cidr(text))


def _mask(cidr: Cidr) -> Cidr:
    return Cidr(cidr.network.network_address, cidr.bits)


@dataclass(frozen=True, slots=True)
class Url:
    scheme: str
    host: str
    raw_path: str
    query: str
    written: str
    TYPE_NAME: ClassVar[str] = "kubernetes.URL"

    @property
    def hostname(self) -> str:
        if self.host.startswith("["):
            return self.host[1 : self.host.rfind("]")]
        return self.host.rpartition(":")[0] if self.port or self.host.endswith(":") else self.host

    @property
    def port(self) -> str:
        match = re.search(r":([0-9]*)$", self.host)
        return match[1] if match and (not self.host.startswith("[") or self.host.rfind("]") < match.start()) else ""

    @property
    def escaped_path(self) -> str:
        if re.fullmatch(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@/%\[\]]*", self.raw_path):
            return self.raw_path
        return quote(unquote(self.raw_path), safe="-_.~$&+,/:;=@")


class BadUrl(ValueError):
    """The text is not an absolute URL. The message is Go's."""

    def __init__(self, text: str, err: str) -> None:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        super().__init__(f'parse "{quoted}": {err}')


def parse_url(text: str) -> Url:
    """Parse an absolute URL, with a scheme or a path from the root. Raise BadUrl."""
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise BadUrl(text, "net/url: invalid control character in URL")
    if not text:
        raise BadUrl(text, "empty url")
    if text == "*":
        return Url("", "", "*", "", text)
    if text.startswith(":"):
        raise BadUrl(text, "missing protocol scheme")
    scheme, rest = "", text
    match = re.match(r"([A-Za-z][A-Za-z0-9+.\-]*):", text)
    if match is not None:
        scheme, rest = match[1].lower(), text[match.end() :]
    # Go's check for requests has no fragment; only the URL itself has one.
    _check_path(text, rest)
    rest = rest.partition("#")[0]
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if not scheme:
            raise BadUrl(text, "invalid URI for request")
        return Url(scheme, "", "", query, text)
    host = ""
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        host = _host(text, authority.rpartition("@")[2])
        rest = slash + path
    return Url(scheme, host, rest, query, text)


def _check_path(text: str, rest: str) -> None:
    bad = re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", rest.partition("?")[0])
    if bad is not None:
        raise BadUrl(text, f'invalid URL escape "{bad.group()}"')


def _host(text: str, host: str) -> str:
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise BadUrl(text, "missing ']' in host")
        after = host[end + 1 :]
    else:
        colon = host.find(":")
        after = host[colon:] if colon >= 0 else ""
    if after and re.fullmatch(":[0-9]*", after) is None:
        raise BadUrl(text, f'invalid port "{after}" after host')
    bad = re.search(r"""[ "<>^`{|}\\]""", host) if not host.startswith("[") else None
    if bad is not None:
        raise BadUrl(text, f'invalid character "{bad.group()}" in host name')
    return unquote(host)


def _url(text: str) -> Url:
    try:
        return parse_url(text)
    except BadUrl as bad:
        raise CelError(f"URL parse error during conversion from string: {bad}") from None


def _is_url(text: str) -> bool:
    try:
        parse_url(text)
    except BadUrl:
        return False
    return True


NETWORK = library(
    function("url", overload("string_to_url", (STRING,), URL, _url)),
    function("getScheme", member("url_get_scheme", (URL,), STRING, lambda url: url.scheme)),
    function("getHost", member("url_get_host", (URL,), STRING, lambda url: url.host)),
    function("getHostname", member("url_get_hostname", (URL,), STRING, lambda url: url.hostname)),
    function("getPort", member("url_get_port", (URL,), STRING, lambda url: url.port)),
    function("getEscapedPath", member("url_get_escaped_path", (URL,), STRING, lambda url: url.escaped_path)),
    function(
        "getQuery",
        member(
            "url_get_query",
            (URL,),
            map_of(STRING, list_of(STRING)),
            lambda url: parse_qs(url.query, keep_blank_values=True),
        ),
    ),
    function("isURL", overload("is_url_string", (STRING,), BOOL, _is_url)),
    function("ip", overload("string_to_ip", (STRING,), IP, _ip)),
    function("family", member("ip_family", (IP,), INT, lambda ip: ip.address.version)),
    function(
        "ip.isCanonical",
        overload("ip_is_canonical", (STRING,), BOOL, lambda text: str(_parse_address(text)) == text),
    ),
    function("isUnspecified", member("ip_is_unspecified", (IP,), BOOL, lambda ip: ip.address.is_unspecified)),
    function("isLoopback", member("ip_is_loopback", (IP,), BOOL, lambda ip: ip.address.is_loopback)),
    function("isLinkLocalMulticast", member("ip_is_link_local_multicast", (IP,), BOOL, _is_link_local_multicast)),
    function("isLinkLocalUnicast", member("ip_is_link_local_unicast", (IP,), BOOL, _is_link_local_unicast)),
    function("isGlobalUnicast", member("ip_is_global_unicast", (IP,), BOOL, _is_global_unicast)),
    function("isIP", overload("is_ip", (STRING,), BOOL, _is_ip)),
    function(
        "string",
        overload("ip_to_string", (IP,), STRING, lambda ip: str(ip.address)),
        overload("cidr_to_string", (CIDR,), STRING, lambda cidr: f"{cidr.address}/{cidr.bits}"),
    ),
    function("cidr", overload("string_to_cidr", (STRING,), CIDR, _cidr)),
    function(
        "containsIP",
        member("cidr_contains_ip_string", (CIDR, STRING), BOOL, _contains_ip_text),
        member("cidr_contains_ip_ip", (CIDR, IP), BOOL, _contains_ip),
    ),
    function(
        "containsCIDR",
        member("cidr_contains_cidr_string", (CIDR, STRING), BOOL, _contains_cidr_text),
        member("cidr_contains_cidr", (CIDR, CIDR), BOOL, _contains_cidr),
    ),
    function("ip", member("cidr_ip", (CIDR,), IP, lambda cidr: Ip(cidr.address))),
    function("prefixLength", member("cidr_prefix_length", (CIDR,), INT, lambda cidr: cidr.bits)),
    function("masked", member("cidr_masked", (CIDR,), CIDR, _mask)),
    function("isCIDR", overload("is_cidr", (STRING,), BOOL, _is_cidr)),
)
