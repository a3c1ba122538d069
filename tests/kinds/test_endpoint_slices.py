"""Endpoint slices have limits."""

from __future__ import annotations

from tests.kinds.strategies import STRATEGIES


def test_a_slice_of_more_than_a_thousand_endpoints_is_too_long() -> None:
    endpoint_slice = {
        "metadata": {"name": "a"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}] * 1001,
    }
    errs = [str(cause) for cause in STRATEGIES["EndpointSlice"].validate(endpoint_slice, None)]
    assert errs == ["endpoints: Too many: 1001: must have at most 1000 items"]
