"""/statusz, /flagz and /debug/pprof: what this process is, how it was started, and where it spends its time.

Authorization is that of every path: members of `system:monitoring` may read the first two.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import orjson

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339
from pinnace.server.health.profiles import LONGEST_SECONDS, ProfileRuns, cpu_profile, task_stacks
from pinnace.serving.messages import Response
from pinnace.serving.request.negotiation import JSON, YAML, clauses
from pinnace.serving.request.yaml_output import as_yaml

_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)
_GROUP = "config.k8s.io"
_DEPRECATED, _CURRENT = "v1alpha1", "v1beta1"
_UNCACHED = (b"Cache-Control", b"no-cache, private")
_TEXT = (_UNCACHED, (b"Content-Type", b"text/plain; charset=utf-8"))
_PLAIN = (*_TEXT, (b"X-Content-Type-Options", b"nosniff"))
_HTML = (_UNCACHED, (b"Content-Type", b"text/html; charset=utf-8"))
_PROFILE = (
    _UNCACHED,
    (b"Content-Type", b"application/octet-stream"),
    (b"Content-Disposition", b'attachment; filename="profile"'),
    (b"X-Content-Type-Options", b"nosniff"),
)
_OFFERED = (JSON, YAML, "text/plain")
_PROFILES = {
    "goroutine": "Where the tasks wait. Use debug=2 as a query parameter for each task by its name.",
    "profile": "CPU profile. You can specify the duration in the seconds GET parameter. After you get the profile "
    "file, use the go tool pprof command to investigate the profile.",
}
_SECONDS = re.compile(r"[0-9]{1,9}").fullmatch
_DEFAULT_SECONDS = 30


class ZPages:
    """The pages of one component."""

    def __init__(
        self,
        component: str,
        *,
        version: Mapping[str, str],
        flags: Mapping[str, str],
        has_statusz: bool,
        has_flagz: bool,
        paths: Sequence[str] = ("/metrics", "/version"),
        began: float | None = None,
    ) -> None:
        """`paths` are the pages of the component beside its health.

        `began` is the time of the monotonic clock at which the component started; None for now.
        """
        self._others = paths
        self._component = component
        self._version = version
        self._flags = dict(sorted(flags.items()))
        self._served = {"statusz": has_statusz, "flagz": has_flagz}
        self._begun = time.monotonic() if began is None else began
        self._started = datetime.now(UTC) - timedelta(seconds=time.monotonic() - self._begun)

    async def answer(self, accept: str, query: str, segments: list[str]) -> Response | None:
        """Return the page at a path in a format that the caller accepts; None if there is none."""
        match segments:
            case ["statusz" | "flagz" as page] if self._served[page]:
                return self._zpage(accept, page)
            case ["debug", "pprof"]:
                return Response(302, (*_HTML, (b"Location", b"/debug/pprof/")), b'<a href="/debug/pprof/">Found</a>.\n')
            case ["debug", "pprof", name]:
                return await self._profile(query, name)
            case _:
                return None

    def _zpage(self, accept: str, page: str) -> Response:
        kind = page.capitalize()
        for media_type, parameters in clauses(accept or "text/plain"):
            if media_type in ("text/plain", "text/*", "*/*") and "as" not in parameters:
                return Response(200, _TEXT, self._text(page).encode())
            version = parameters.get("v")
            is_known = parameters.get("g") == _GROUP and version in (_DEPRECATED, _CURRENT)
            if media_type in (JSON, YAML) and parameters.get("as") == kind and is_known:
                document: Object = {
                    "kind": kind,
                    "apiVersion": f"{_GROUP}/{version}",
                    "metadata": {"name": self._component},
                }
                document |= self._status() if page == "statusz" else {"flags": self._flags}
                content_type = f"{media_type};g={_GROUP};v={version};as={kind}".encode()
                body = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
                body = body if media_type == JSON else as_yaml(body)
                headers = [_UNCACHED, (b"Content-Type", content_type)]
                if version == _DEPRECATED:
                    text = f"This version of the {page} endpoint is deprecated. Please use a newer version."
                    headers.append((b"Warning", f'299 - "{text}"'.encode()))
                return Response(200, tuple(headers), body)
        raise errors.NotShownSo(_OFFERED)

    def _status(self) -> Object:
        return {
            "startTime": to_rfc3339(self._started),
            "uptimeSeconds": int(time.monotonic() - self._begun),
            "goVersion": self._version["goVersion"] or self._version["compiler"],
            "binaryVersion": self._version["gitVersion"].removeprefix("v"),
            "emulationVersion": f"{self._version['emulationMajor']}.{self._version['emulationMinor']}",
            "paths": self._paths(),
        }

    def _paths(self) -> list[str]:
        served = [f"/{page}" for page, is_served in self._served.items() if is_served]
        return sorted(["/healthz", "/livez", "/readyz", *self._others, *served])

    def _text(self, page: str) -> str:
        head = f"\n{self._component} {page}\n{_WARNING}\n"
        if page == "flagz":
            return head + "".join(f"{name}={value}\n" for name, value in self._flags.items())
        status = self._status()
        seconds = status["uptimeSeconds"]
        up = f"{seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec"
        rows = {
            "Started": self._started.strftime("%a %b %d %H:%M:%S UTC %Y"),
            "Up": up,
            "Go version": status["goVersion"],
            "Binary version": status["binaryVersion"],
            "Emulation version": status["emulationVersion"],
            "Paths": " ".join(status["paths"]),
        }
        return head + "\n" + "".join(f"{name}: {value}\n" for name, value in rows.items())

    async def _profile(self, raw_query: str, name: str) -> Response:
        query = parse_qs(raw_query, max_num_fields=20)
        if not name:
            return Response(200, _HTML, _index().encode())
        if name == "goroutine":
            return Response(200, _PLAIN, task_stacks(grouped=query.get("debug", [""])[-1] != "2").encode())
        if name != "profile":
            return Response(404, (*_PLAIN, (b"X-Go-Pprof", b"1")), b"Unknown profile\n")
        text = query.get("seconds", [""])[-1]
        seconds = int(text) if _SECONDS(text) else 0
        seconds = seconds or _DEFAULT_SECONDS  # As in Go: 30 seconds unless a positive number is given.
        if seconds > LONGEST_SECONDS:
            error = f"profile duration exceeds the limit of {LONGEST_SECONDS} seconds\n"
            return Response(400, _PLAIN, error.encode())
        try:
            return Response(200, _PROFILE, await cpu_profile(seconds))
        except ProfileRuns:
            return Response(500, _PLAIN, b"Could not enable CPU profiling: cpu profiling already in use\n")


def _index() -> str:
    from html import escape  # noqa: PLC0415 - it comes with a table of all entities.

    counts = {"goroutine": len(asyncio.all_tasks())}
    rows = "\n".join(
        f"<tr><td>{counts.get(name, 0)}</td><td><a href='{name}?debug=1'>{name}</a></td></tr>" for name in _PROFILES
    )
    descriptions = "\n".join(
        f"<li><div class=profile-name>{name}: </div> {escape(about)}</li>" for name, about in _PROFILES.items()
    )
    return (
        "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<br>\n"
        f"Types of profiles available:\n<table>\n<thead><td>Count</td><td>Profile</td></thead>\n{rows}\n</table>\n"
        f"<p>\nProfile Descriptions:\n<ul>\n{descriptions}\n</ul>\n</p>\n</body>\n</html>\n"
    )
