"""Request bodies: the error messages were recorded from a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.kinds.definitions import Definitions
from pinnace.model import errors
from pinnace.model.objects import Kind
from pinnace.model.quantity import canonical
from pinnace.schema.golang.decode import Decoders
from pinnace.serving.request import body as bodies
from pinnace.serving.request.body import Body, FieldValidation

CONFIG_MAP = Kind("", "v1", "ConfigMap")
BOAT = Kind("boats.example.com", "v1", "Boat")
KNOWN = {CONFIG_MAP, Kind("", "v1", "Pod"), Kind("apps", "v1", "Deployment"), Kind("apps", "v1beta1", "Deployment")}
DEFINITIONS = Definitions.load("1.36")
config_map = Decoders(quantity=canonical).of(DEFINITIONS.schema("io.k8s.api.core.v1.ConfigMap"))


def _read(body: bytes | str, content_type: str = "application/json", *, kind: Kind = CONFIG_MAP) -> Body:
    raw = body.encode() if isinstance(body, str) else body
    return bodies.read(
        raw,
        content_type,
        kind=kind,
        is_known=KNOWN.__contains__,
        is_custom=kind is BOAT,
        look_for_repeats=True,
    )


def _refusal(body: bytes | str, content_type: str = "application/json", *, kind: Kind = CONFIG_MAP) -> str:
    with pytest.raises(errors.BadRequest) as caught:
        _read(body, content_type, kind=kind)
    return caught.value.message


TOO_DEEP = """invalid character '{' exceeded max depth ({"a":{"a":{"a":{"a":{"a":{"a": ...)"""


@pytest.mark.parametrize(
    ("body", "err"),
    [
        ("", "unexpected end of JSON input (<empty>)"),
        ("{", "unexpected end of JSON input ({)"),
        ('{"a":}', "invalid character '}' looking for beginning of value ({\"a\":})"),
        ('{"a":1}x', "invalid character 'x' after top-level value ({\"a\":1}x)"),
        ("{'a':1}", r"invalid character '\'' looking for beginning of object key string ({'a':1})"),
        ("not json at all", "invalid character 'o' in literal null (expecting 'u') (6e6f74206a736f6e20617420616c6c)"),
        ('{"a"1}', "invalid character '1' after object key ({\"a\"1})"),
        ("[1 2]", "invalid character '2' after array element (5b3120325d)"),
        ('{"a":"\\x"}', 'invalid character \'x\' in string escape code ({"a":"\\x"})'),
        ('{"a":"\\u12"}', 'invalid character \'"\' in \\u hexadecimal character escape ({"a":"\\u12"})'),
        ('{"a":"\t"}', 'invalid character \'\\t\' in string literal ({"a":"\t"})'),
        ('{"a":-}', "invalid character '}' in numeric literal ({\"a\":-})"),
        ('{"a":1.}', "invalid character '}' after decimal point in numeric literal ({\"a\":1.})"),
        ('{"a":1e}', "invalid character '}' in exponent of numeric literal ({\"a\":1e})"),
        ('{"a":1e+', "invalid character ' ' in exponent of numeric literal ({\"a\":1e+)"),
        ('{"a":nul', "invalid character ' ' in literal null (expecting 'l') ({\"a\":nul)"),
        ('{"a":"\\', 'invalid character \' \' in string escape code ({"a":"\\)'),
        ('{"a":[1,]}', "invalid character ']' looking for beginning of value ({\"a\":[1,]})"),
        ("\x00", r"invalid character '\x00' looking for beginning of value (00)"),
        (
            '{"metadata":{"name":"x"},"data":{"a":NaN}}',
            'invalid character \'N\' looking for beginning of value ({"metadata":{"name":"x"},"data ...)',
        ),
        (
            "[]",
            'json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\\"apiVersion,'
            'omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } (5b5d)',
        ),
        (
            '{"apiVersion": "v1", "kind": 3, "x": 1}',
            "json: cannot unmarshal number into Go struct field .kind of type string "
            '({"apiVersion": "v1", "kind": 3 ...)',
        ),
        ('{"a":' * 20000, TOO_DEEP),
        ('{"a":' * 300 + "1" + "}" * 300, TOO_DEEP),
    ],
)
def test_malformed_json_is_reported_as_the_real_server_tells_it(body: str, err: str) -> None:
    start = (
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: "
    )
    assert _refusal(body) == start + err


@pytest.mark.parametrize(
    "body", ["{}", "null", '{"kind":"ConfigMap"}', '{"apiVersion":"v1"}', '{"kind":"","apiVersion":null}']
)
def test_a_built_in_object_may_leave_out_what_it_is(body: str) -> None:
    assert _read(body).obj == {"kind": "ConfigMap", "apiVersion": "v1"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            '{"kind":"Foo","apiVersion":"foo/v1"}',
            'Foo in version "v1" cannot be handled as a ConfigMap: no kind "Foo" is registered for version "foo/v1" in '
            'scheme "pkg/api/legacyscheme/scheme.go:30"',
        ),
        (
            '{"kind":"Pod","apiVersion":"v1"}',
            'Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown '
            "conversion",
        ),
        (
            '{"apiVersion":"a/b/c"}',
            "the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: a/b/c "
            '({"apiVersion":"a/b/c"})',
        ),
    ],
)
def test_an_object_of_another_kind_is_refused(body: str, message: str) -> None:
    assert _refusal(body) == message


def test_another_version_of_the_kind_is_refused() -> None:
    deployment = Kind("apps", "v1", "Deployment")
    assert _refusal('{"kind":"Deployment","apiVersion":"apps/v1beta1"}', kind=deployment) == (
        "the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{}", "the object provided is unrecognized (must be of type Boat): Object 'Kind' is missing in '{}' ({})"),
        (
            '{"kind":"Boat"}',
            "the API version in the data () does not match the expected API version (boats.example.com/v1)",
        ),
    ],
)
def test_a_custom_object_must_say_what_it_is(body: str, message: str) -> None:
    assert _refusal(body, kind=BOAT) == message


def test_a_custom_object_of_another_kind_is_left_to_validation() -> None:
    body = '{"kind":"Boaty","apiVersion":"boats.example.com/v1"}'
    assert _read(body, kind=BOAT).obj == json.loads(body)


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "application/yaml",
        "application/json;",
        'application/json; a="b \\" c" ; d = e;',
    ],
)
def test_json_and_yaml_are_accepted(content_type: str) -> None:
    assert _read('{"data":{"a":"b"}}', content_type).obj["data"] == {"a": "b"}


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/cbor",
        "*/*",
        "garbage;;",
        "application/json; =",
        "application/json; charset",
        "application/json; a=1; A=2",
        'application/json; a="b',
    ],
)
def test_other_formats_are_refused(content_type: str) -> None:
    with pytest.raises(errors.UnsupportedMediaType) as caught:
        _read("{}", content_type)
    assert caught.value.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )


@pytest.mark.parametrize(
    ("body", "err"),
    [
        (b"\xcf", "invalid character 'Ï' looking for beginning of value"),
        (b'{"a"\xff', "invalid character 'ÿ' after object key"),
        (b"\x80", r"invalid character '\u0080' looking for beginning of value"),
        ("€".encode(), "invalid character 'â' looking for beginning of value"),
        (b'{"a":"\\u\xcf1 ', "invalid character 'Ï' in \\u hexadecimal character escape"),
    ],
)
def test_a_byte_that_is_no_text_is_reported_by_its_number(body: bytes, err: str) -> None:
    with pytest.raises(bodies.MalformedBody) as refused:
        bodies.parse_json(body)
    assert str(refused.value) == err


def test_invalid_unicode_is_replaced() -> None:
    assert _read(b'{"data":{"a":"\xff"}}').obj["data"] == {"a": "\N{REPLACEMENT CHARACTER}"}
    assert _read(b'{"data":{"a":"\\ud800"}}').obj["data"] == {"a": "\N{REPLACEMENT CHARACTER}"}


REPEATED = '{"metadata":{"name":"x","name":"y"},"data":{"a":"1","a":"2"},"foo":1,"foo":2,"data":{"b":"1"}}'


def test_strict_validation_tells_repeated_and_unknown_fields() -> None:
    with pytest.raises(errors.BadRequest) as caught:
        bodies.decode(_read(REPEATED), config_map, kind=CONFIG_MAP, validation="Strict")
    assert caught.value.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'duplicate field "metadata.name", duplicate field "data.a", unknown field "foo", duplicate field "data"'
    )


@pytest.mark.parametrize(
    ("validation", "warnings"), [("Warn", ['duplicate field "data.a"', 'unknown field "foo"']), ("Ignore", [])]
)
def test_other_validation_warns_or_is_silent(validation: FieldValidation, warnings: list[str]) -> None:
    body = _read('{"data":{"a":"1","a":"2"},"foo":{"a":1,"a":2}}')
    assert bodies.decode(body, config_map, kind=CONFIG_MAP, validation=validation) == warnings
    assert body.obj["data"] == {"a": "2"}
    assert "foo" not in body.obj


def test_a_wrong_type_is_reported_with_the_kind() -> None:
    with pytest.raises(errors.BadRequest) as caught:
        bodies.decode(_read('{"data":{"a":1}}'), config_map, kind=CONFIG_MAP, validation="Strict")
    assert caught.value.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    )


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ('{"a":{"b":1,"b":2}}', ("a.b",)),
        ('{"a":[{"b":1},{"b" : 1, "b"\n: 2}]}', ("a[1].b",)),
        ('{"a":1,"\\u0061":2}', ("a",)),
        ('{"a\\\\":1,"a\\\\":2}', ("a\\",)),
        ('{"x":"\\":\\":", "a":"\\\\", "a":1}', ("a",)),
        ('{"a":"{\\"b\\":1,\\"b\\":2}"}', ()),
        ('{"":1,"":2}', ("",)),
        ('{"a":1,"a":2,"b":"\\u003a"}', ("a",)),
        ('{"a":1,"a":"\\u003A:"}', ("a",)),
    ],
)
def test_repeats_are_found_however_they_are_written(body: str, paths: tuple[str, ...]) -> None:
    assert bodies.repeated_fields(body.encode(), json.loads(body)) == paths


_keys = st.text(alphabet='ab":\\ \n', max_size=3)
_pairs = st.recursive(
    st.one_of(_keys, st.integers(0, 3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(st.tuples(_keys, inner), max_size=4).map(tuple)),
    max_leaves=12,
)


def _string(text: str) -> str:
    return json.dumps(text).replace(":", "\\u003a", 1)


def _written(value: Any, gap: str) -> str:
    if isinstance(value, tuple):
        fields = (f"{_string(key)}{gap}:{_written(inner, gap)}" for key, inner in value)
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(inner, gap) for inner in value) + "]"
    return _string(value) if isinstance(value, str) else json.dumps(value)


def _has_repeats(value: Any) -> bool:
    if isinstance(value, tuple):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(_has_repeats(inner) for _, inner in value)
    return isinstance(value, list) and any(_has_repeats(inner) for inner in value)


@given(_pairs, st.sampled_from(["", " ", "\n"]))
def test_no_repeat_is_ever_missed(value: Any, gap: str) -> None:
    text = _written(value, gap)
    assert bool(bodies.repeated_fields(text.encode(), json.loads(text))) == _has_repeats(value)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for content_type in bodies.ACCEPTED:
        try:
            _read(body, content_type)
        except (errors.BadRequest, errors.UnsupportedMediaType) as error:
            assert error.message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"data: {a: \xff}", "yaml: invalid leading UTF-8 octet"),
        (b"data: {a: \xc3(}", "yaml: invalid trailing UTF-8 octet"),
        (b"data: \xc3", "yaml: incomplete UTF-8 octet sequence"),
    ],
    ids=["no first byte", "no second byte", "half a character"],
)
def test_yaml_that_is_no_text_is_refused(body: bytes, message: str) -> None:
    assert message in _refusal(body, "application/yaml")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_yaml_may_begin_with_a_byte_order_mark(encoding: str) -> None:
    assert _read("data: {a: b}".encode(encoding), "application/yaml").obj["data"] == {"a": "b"}
