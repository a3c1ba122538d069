"""The warnings of one response are limited as in Kubernetes: a client's header buffer is too."""

from __future__ import annotations

import pytest
from tests.server.in_process import CONFIG_MAPS, PODS, InProcess


def texts(headers: list[str]) -> list[str]:
    return [text.removeprefix('299 - "').removesuffix('"') for text in headers]


async def test_few_warnings_are_sent_whole_and_once(api: InProcess) -> None:
    reply = await api.post(CONFIG_MAPS, {"metadata": {"name": "odd"}, "x" * 300: 1, "y": 2})
    assert texts(reply.header("warning")) == [f'unknown field \\"{"x" * 300}\\"', 'unknown field \\"y\\"']


@pytest.mark.parametrize(("length", "count"), [(30, 90), (300, 16)])
async def test_beyond_the_limit_long_warnings_are_cut_and_the_rest_is_dropped(
    api: InProcess, length: int, count: int
) -> None:
    unknown = {f"{number:03}".ljust(length, "x"): 1 for number in range(500)}
    result = texts((await api.post(CONFIG_MAPS, {"metadata": {"name": "odd"}, **unknown})).header("warning"))
    assert len(result) == count
    assert all(len(text.replace("\\", "")) <= 256 for text in result)
    assert [text[len('unknown field \\"') :][:3] for text in result] == [f"{number:03}" for number in range(count)]


async def test_twelve_thousand_warnings_take_no_more_room(api: InProcess) -> None:
    env = [{"name": "E", "value": "v"}] * 12_000
    container = {"name": "c", "image": "i", "env": env}
    reply = await api.post(PODS, {"metadata": {"name": "odd"}, "spec": {"containers": [container]}})
    assert reply.status == 201
    assert 0 < sum(map(len, reply.header("warning"))) < 8192
