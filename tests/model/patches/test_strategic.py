"""The errors of strategic merge patches that do not apply."""

from __future__ import annotations

from typing import Any

import pytest
from tests.schema.merge.samples import POD

from pinnace.model.errors import ApiError, BadRequest
from pinnace.model.patches.json_and_merge import PatchRefused
from pinnace.model.patches.strategic import PatchFailed, strategic_merge_patch

LIVE = {"spec": {"containers": [{"name": "a"}]}}


@pytest.mark.parametrize(
    ("patch", "error", "message"),
    [
        ([1], BadRequest, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ({"spec": {"$retainKeys": 1}}, BadRequest, "invalid patch format of retainKeys"),
        ({"spec": {"containers": [{}]}}, PatchFailed, "map: map[] does not contain declared merge key: name"),
    ],
)
def test_the_refusal_is_that_of_a_real_server(patch: Any, error: type[ApiError], message: str) -> None:
    with pytest.raises(error) as caught:
        strategic_merge_patch(LIVE, patch, POD)
    assert caught.value.message == message
    assert "reason" not in PatchFailed("x").status


def test_lists_of_lists_are_unprocessable() -> None:
    with pytest.raises(PatchRefused):
        strategic_merge_patch({"metadata": {"finalizers": [[1]]}}, {"metadata": {"finalizers": [[2]]}}, POD)


def test_a_patch_is_merged() -> None:
    patch = {"spec": {"containers": [{"name": "a", "image": "i"}]}}
    assert strategic_merge_patch(LIVE, patch, POD) == {"spec": {"containers": [{"name": "a", "image": "i"}]}}
