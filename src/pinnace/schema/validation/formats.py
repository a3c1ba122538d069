"""The formats of strings that Kubernetes checks. An unknown format is ignored, and is no error."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address

from pinnace.schema.golang.numbers import parse_int
from pinnace.schema.golang.patterns import compile_pattern

Check = Callable[[str], bool]

INTEGER_FORMATS = ("int32", "int64")
NUMBER_FORMATS = ("float", "double")

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
# Possessive (*+, ++): a run is taken as a whole and never given back, so a mismatch is found in linear time.
_ATOM = r"[^\x00-\x20()<>\[\]:;@\\,.\"\x7f]++"
_BLANKS = r"[\t-\r ]*+"
_LOCAL = rf'(?:{_ATOM}(?:\.{_ATOM})*|"(?:[^"\\\x00-\x1f\x7f]|\\.)*")'
_MAIL = rf"{_LOCAL}@(?:{_ATOM}(?:\.{_ATOM})*|\[[^\[\]\\]*+\])"
_EMAIL = re.compile(rf"{_BLANKS}(?:{_MAIL}|(?:(?:{_ATOM}|\"[^\"]*+\"){_BLANKS})*<{_MAIL}>){_BLANKS}")
_SYMBOLIC_HOSTNAME = (
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}]"
    r"(([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
)
_PLAIN_HOSTNAME = re.compile(
    r"([a-zA-Z0-9](-?[a-zA-Z0-9]{0,62})?|([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,63})"
)
_CARD = (
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)
_SHADE = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*"
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_USUAL_MOMENT = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?Z"
)
"""The most frequent form: a day that every month has, in UTC."""
_GO_DURATION = re.compile(r"[+-]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_WORDED_DURATION = re.compile(r"(?<![0-9])[0-9]++\s*+([A-Za-zµ]++)")
_UNIT_WORDS = frozenset(("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"))
_UNIT_STARTS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"(?:[^\x00-\x20\"#%/<>?@\[\\\]^`{|}\x7f]|%[0-9A-Fa-f]{2})*")
_MAC = re.compile(
    r"[0-9a-f]{2}(?:(?::[0-9a-f]{2}){5}(?:(?::[0-9a-f]{2}){2}|(?::[0-9a-f]{2}){14})?"
    r"|(?:-[0-9a-f]{2}){5}(?:(?:-[0-9a-f]{2}){2}|(?:-[0-9a-f]{2}){14})?)"
    r"|[0-9a-f]{4}(?:\.[0-9a-f]{4}){2}(?:\.[0-9a-f]{4}|(?:\.[0-9a-f]{4}){7})?",
    re.IGNORECASE,
)


def check_of(format: str) -> Check | None:
    """Return the check of a string's format; None where Kubernetes has none, and accepts every string."""
    return _CHECKS.get(format.replace("-", ""))


def effective_format(type: str, format: str) -> str:
    """Return the format that is checked for values of this type; empty where Kubernetes ignores it."""
    match type:
        case "" | "string":
            return format if format.replace("-", "") in _CHECKS else ""
        case "integer":
            return format if format in INTEGER_FORMATS else ""
        case "number":
            return format if format in NUMBER_FORMATS else ""
    return ""


def _match_whole(pattern: str, *, flags: int = re.ASCII) -> Check:
    matches = re.compile(pattern, flags).fullmatch
    return lambda text: matches(text) is not None


def is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1]:
        return False
    return (month, day) != (2, 29) or (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))


def is_date_time(text: str) -> bool:
    if _USUAL_MOMENT.fullmatch(text):
        return True
    date, time, *_ = [*text.lower().split("t"), "", ""]
    if len(text) < 4 or not time or not is_date(date):
        return False
    match = _TIME.fullmatch(time)
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def is_duration(text: str) -> bool:
    if _GO_DURATION.fullmatch(text):
        return True
    units = (unit.lower() for unit in _WORDED_DURATION.findall(text))
    return any(unit in _UNIT_WORDS or unit.startswith(_UNIT_STARTS) for unit in units)


def is_ipv4(text: str) -> bool:
    """Return whether the text is an IPv4 address. Leading zeros are allowed, as in Kubernetes, for old objects."""
    return "." in text and (_is_dotted(text) or _is_ipv6_address(text))


def is_ipv6(text: str) -> bool:
    return ":" in text and _is_ipv6_address(text)


def _is_dotted(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(part.isdigit() and parse_int(part, greatest=255) is not None for part in parts)


def _is_ipv6_address(text: str) -> bool:
    if "%" in text:
        return False
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def is_cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdigit()) or len(length) > 8:
        return False
    if _is_dotted(address):
        return int(length) <= 32
    return ":" in address and _is_ipv6_address(address) and int(length) <= 128


def is_uri(text: str) -> bool:
    """Return whether the text is an absolute URI or an absolute path, as in Go's url.ParseRequestURI."""
    if text == "*":
        return True
    if not text or any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        return False
    rest = text
    if scheme := _SCHEME.match(text):
        rest = text[scheme.end() :]
        if not rest.startswith("/"):
            return True
    elif not text.startswith("/"):
        return False
    path = rest.partition("?")[0]
    if scheme and path.startswith("//"):
        authority, _, path = path[2:].partition("/")
        if not _is_authority(authority):
            return False
    return not _BROKEN_ESCAPE.search(path)


def _is_authority(authority: str) -> bool:
    user, at, host = authority.rpartition("@")
    if at and (_BROKEN_ESCAPE.search(user) or not re.fullmatch(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", user)):
        return False
    if host.startswith("["):
        end = host.rfind("]")
        port = host[end + 1 :]
        return end >= 0 and (not port or (port[0] == ":" and _is_port(port[1:])))
    name, colon, port = host.rpartition(":")
    if colon and not _is_port(port):
        return False
    return _HOST.fullmatch(name if colon else host) is not None


def _is_port(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit())


def is_hostname(text: str) -> bool:
    if not _PLAIN_HOSTNAME.fullmatch(text):
        has_symbols = not text.isascii() or any(character in "$+<=>^`|~" for character in text)
        if not has_symbols or not compile_pattern(_SYMBOLIC_HOSTNAME).search(text):
            return False
    octets = text.encode()
    return len(octets) <= 255 and all(len(part) <= 63 for part in octets.split(b"."))


def is_credit_card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if not re.fullmatch(_CARD, digits):
        return False
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\t\n\f\r -]+", "", text)
    if not re.fullmatch("[0-9]{9}X|[0-9]{10}", digits):
        return False
    return sum((place + 1) * (10 if c == "X" else int(c)) for place, c in enumerate(digits)) % 11 == 0


def is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\t\n\f\r -]+", "", text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum(int(c) * (1, 3)[place % 2] for place, c in enumerate(digits)) % 10 == 0


_CHECKS: dict[str, Check] = {
    "bsonobjectid": _match_whole("[0-9a-fA-F]{24}"),
    "uri": is_uri,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "cidr": is_cidr,
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "uuid": _match_whole("[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"),
    "uuid3": _match_whole("[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?3[0-9a-fA-F]{3}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"),
    "uuid4": _match_whole("[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?4[0-9a-fA-F]{3}-?[89abAB][0-9a-fA-F]{3}-?[0-9a-fA-F]{12}"),
    "uuid5": _match_whole("[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?5[0-9a-fA-F]{3}-?[89abAB][0-9a-fA-F]{3}-?[0-9a-fA-F]{12}"),
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "creditcard": is_credit_card,
    "ssn": lambda text: len(text) == 11 and re.fullmatch("[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}", text) is not None,
    "hexcolor": _match_whole("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _match_whole(rf"rgb\({_SHADE},{_SHADE},{_SHADE}\)"),
    "byte": _match_whole("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": is_date,
    "duration": is_duration,
    "datetime": is_date_time,
    "k8sshortname": lambda text: len(text) <= 63 and re.fullmatch(_LABEL, text) is not None,
    "k8slongname": lambda text: len(text) <= 253 and re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", text) is not None,
}
