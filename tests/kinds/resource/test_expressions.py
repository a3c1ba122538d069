"""The expressions of device selectors are validated as in Kubernetes."""

from __future__ import annotations

import pytest

from pinnace.kinds.resource.checks import validate_selector
from pinnace.kinds.resource.expressions import validate_expression
from pinnace.model.field_errors import required


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gpu.example.com'",
        "device.allowMultipleAllocations",
        "device.attributes['gpu.example.com'].fast",
        "device.attributes['gpu.example.com'].model.matches('^a+$')",
        "device.attributes['gpu.example.com'].version.isGreaterThan(semver('1.0.0'))",
        "device.capacity['gpu.example.com'].memory.compareTo(quantity('1Gi')) > 0",
        "cel.bind(gpu, device.attributes['gpu.example.com'], gpu.fast && gpu.new)",
        "'gpu.example.com' in device.attributes",
    ],
)
def test_it_may_ask_for_all_that_a_device_has(expression: str) -> None:
    assert not list(validate_expression(expression, "expression"))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("device.name", "undefined field 'name'"),
        ("", "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[',"),
        ("fast", "undeclared reference to 'fast' (in container '')"),
        ("a=b", "Syntax error: token recognition error at: '=b'"),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        ("device", "must evaluate to bool or the unknown type, not kubernetes.DRADevice"),
    ],
)
def test_an_invalid_expression_is_refused_in_the_words_of_the_compiler(expression: str, message: str) -> None:
    (err,) = validate_expression(expression, "expression")
    assert (err.field, err.reason) == ("expression", "FieldValueInvalid")
    assert message in err.message


def test_an_expression_that_costs_too_much_is_refused() -> None:
    all_of_all = "device.attributes.all(d, device.attributes[d].all(k, device.attributes.all(e, e == k || e == d)))"
    dear = f"device.attributes.all(x, device.attributes[x].all(y, {all_of_all}))"
    (err,) = validate_expression(dear, "expression")
    assert err.message == "Forbidden: too complex, exceeds cost limit"


def test_a_selector_is_asked_what_it_means_where_it_is_checked() -> None:
    assert list(validate_selector({}, "selectors[0]")) == [required("selectors[0].cel")]
    (err,) = validate_selector({"cel": {"expression": "1"}}, "selectors[0]")
    assert err.field == "selectors[0].cel.expression"
