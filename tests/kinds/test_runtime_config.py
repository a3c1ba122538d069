"""Switching APIs on and off, as with kube-apiserver's --runtime-config."""

from __future__ import annotations

import pytest

from pinnace.kinds.catalog import check_runtime_config
from pinnace.kinds.definitions import Definitions
from pinnace.kinds.runtime_config import InvalidRuntimeConfig, RuntimeConfig


@pytest.mark.parametrize(
    ("text", "version", "by_default", "is_served"),
    [
        ("", "v1", True, True),
        ("api/all=false,api/ga=true", "v1", True, True),
        ("api/all=false,api/ga=true", "v1beta1", True, False),
        ("api/alpha=true", "v2alpha1", False, True),
        ("api/alpha=true", "v1beta1", False, False),
        ("api/beta=false,batch/v1beta1", "v1beta1", True, True),
        ("batch/v1=false,batch/v1/jobs=true", "v1", True, True),
    ],
)
def test_the_most_specific_value_decides(text: str, version: str, by_default: bool, is_served: bool) -> None:
    config = RuntimeConfig.parse(text)
    assert config.serves("batch", version, "jobs", by_default=by_default) is is_served
    assert RuntimeConfig.parse(str(config)).serves("batch", version, "jobs", by_default=by_default) is is_served


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apps=true", "runtime-config invalid key apps"),
        ("a/b/c/d=true", "runtime-config invalid key a/b/c/d"),
        ("api/all=false", "invalid runtime-config with only api/all=false"),
        ("apps/v1=2", 'invalid value of apps/v1: 2, err: strconv.ParseBool: parsing "2": invalid syntax'),
        (
            "apps/v1/DaemonSets=true",
            "invalid key apps/v1/DaemonSets: group/version/resource and resource is always lowercase plural, "
            'not "DaemonSets"',
        ),
        ("nothing.io/v1=true,apps/v1=true", "unknown api groups nothing.io/v1"),
        ("apps/v7=true", "group version apps/v7 that has not been registered"),
    ],
)
def test_values_that_name_no_api_are_refused_in_the_words_of_kubernetes(text: str, message: str) -> None:
    with pytest.raises(InvalidRuntimeConfig) as refused:
        check_runtime_config(RuntimeConfig.parse(text), Definitions.load("1.36"))
    assert str(refused.value) == message
