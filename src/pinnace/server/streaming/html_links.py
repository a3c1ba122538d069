"""Rewrites links in the pages of a proxied pod, so that they lead through the proxy."""

from __future__ import annotations

import re
from collections.abc import Callable

LARGEST_PAGE = 4 << 20
"""Larger pages are not rewritten."""

# Bounded, so that a page of open quotes costs no more than its length times this.
_VALUE = rb"\"[^\"]{0,1024}\"|'[^']{0,1024}'"
_TAG = re.compile(rb"<!--|<([A-Za-z][A-Za-z0-9]{0,20})((?:[^<>\"']|%b){0,2048})>" % _VALUE, re.DOTALL)
_ATTRIBUTE = re.compile(rb"(\s)([A-Za-z]{1,20})(\s*=\s*)(%b|[^\s>\"']{1,1024})" % _VALUE)
_LINKS: dict[bytes, frozenset[bytes]] = {
    tag: frozenset(attributes.split())
    for tag, attributes in {
        b"a": b"href",
        b"applet": b"codebase",
        b"area": b"href",
        b"audio": b"src",
        b"base": b"href",
        b"blockquote": b"cite",
        b"body": b"background",
        b"button": b"formaction",
        b"command": b"icon",
        b"del": b"cite",
        b"embed": b"src",
        b"form": b"action",
        b"frame": b"longdesc src",
        b"head": b"profile",
        b"html": b"manifest",
        b"iframe": b"longdesc src",
        b"img": b"longdesc src usemap",
        b"input": b"src usemap formaction",
        b"ins": b"cite",
        b"link": b"href",
        b"object": b"classid codebase data usemap",
        b"q": b"cite",
        b"script": b"src",
        b"source": b"src",
        b"video": b"poster src",
    }.items()
}
_OPAQUE = frozenset((b"script", b"style", b"textarea", b"title"))
"""The content of these is text, even if it looks like tags."""


def rewrite_links(page: bytes, link: Callable[[str], str]) -> bytes:
    """Return the page with every link replaced by the result of `link`."""
    parts: list[bytes] = []
    at = 0
    while (tag := _TAG.search(page, at)) is not None:
        parts.append(page[at : tag.start()])
        name = (tag[1] or b"").lower()
        parts.append(_rewrite_tag(tag, _LINKS[name], link) if name in _LINKS else tag[0])
        at = tag.end()
        if name in _OPAQUE or not name:
            end = page.find(b"</" + tag[1] if name else b"-->", at)
            parts.append(page[at : end if end >= 0 else len(page)])
            at = end if end >= 0 else len(page)
    parts.append(page[at:])
    return b"".join(parts)


def _rewrite_tag(tag: re.Match[bytes], links: frozenset[bytes], link: Callable[[str], str]) -> bytes:
    def replace(attribute: re.Match[bytes]) -> bytes:
        space, name, equals, value = attribute.groups()
        if name.lower() not in links:
            return attribute[0]
        quote = value[:1] if value[:1] in (b'"', b"'") else b""
        text = value[1:-1] if quote else value
        new = link(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return b"%b%b%b%b%b%b" % (space, name, equals, quote, new, quote)

    return b"<%b%b>" % (tag[1], _ATTRIBUTE.sub(replace, tag[2]))
