"""Patterns mean here what they mean to Go's regexp."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.growth import cpu_seconds, is_linear

from pinnace.schema.golang.patterns import MAX_LENGTH, PatternError, compile_pattern

FOUND = [
    ("^a+$", "aaa", True),
    ("^a+$", "aaa\n", False),
    ("(?m)^a+$", "b\naaa\nc", True),
    ("(?i)abc|d", "xABC", True),
    ("(?i)abc|d", "D", True),
    ("x(?i)a|b", "xA", True),
    ("x(?i)a|b", "XA", False),
    ("(?i:a)b", "AB", False),
    ("[[:alpha:]]+", "é", False),
    (r"^\w+$", "é", False),
    (r"^\d$", "٣", False),
    (r"^\s$", "\v", False),
    (r"^[\s]$", "\t", True),
    (r"^[^\S]$", " ", True),
    (r"^\pL+$", "éàß", True),
    (r"^\p{Lu}$", "a", False),
    (r"^\P{L}$", "1", True),
    (r"^\p{Greek}+$", "αβγ", True),
    (r"\Q.+\E", "a.+b", True),
    (r"\Q.+\E", "aab", False),
    ("a{,3}", "a{,3}", True),
    ("^[a-]$", "-", True),
    ("^[]a]$", "]", True),
    ("^[a-b-z]$", "-", True),
    ("^[&&-~]$", "~", True),
    ("^*a", "a", True),
    (".", "\n", False),
    ("(?s).", "\n", True),
    (r"\x{1F600}", "😀", True),
    (r"^\x41\101\t$", "AA\t", True),
    (r"\bfoo\b", "a foo b", True),
    ("(?P<name>a)(?<other>b)", "ab", True),
    ("^(?:a|b)*?$", "abab", True),
    ("(?P<n>a)(?P<n>b)", "ab", True),
    (r"^\/a\-b$", "/a-b", True),
    (r"\B", "", True),
    (r"a(?s)*", "", True),
    (r"^\Q\C\E$", r"\C", True),
    (r"^\\C$", r"\C", True),
]

REFUSED = [
    ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
    ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
    ("a**", "invalid nested repetition operator: `**`"),
    ("a++", "invalid nested repetition operator: `++`"),
    ("(a", "missing closing ): `(a`"),
    ("a)", "unexpected ): `a)`"),
    ("[z-a]", "invalid character class range: `z-a`"),
    ("[a", "missing closing ]: `[a`"),
    (r"\1", r"invalid escape sequence: `\1`"),
    (r"\Z", r"invalid escape sequence: `\Z`"),
    ("a{1001}", "invalid repeat count: `{1001}`"),
    ("*", "missing argument to repetition operator: `*`"),
    ("*?", "missing argument to repetition operator: `*?`"),
    ("(?P<n", "invalid named capture: `(?P<n`"),
    ("(?i-", "invalid or unsupported Perl syntax: `(?i-`"),
    ("a|*", "missing argument to repetition operator: `*`"),
    ("\\", "trailing backslash at end of expression: ``"),
    (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
    (r"a\C", r"invalid escape sequence: `\C`"),
    ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
]


@pytest.mark.parametrize(("pattern", "text", "is_found"), FOUND)
def test_a_pattern_finds_what_go_would_find(pattern: str, text: str, is_found: bool) -> None:
    assert bool(compile_pattern(pattern).search(text)) is is_found


@pytest.mark.parametrize(("pattern", "why"), REFUSED)
def test_a_pattern_that_go_refuses_is_refused_in_its_words(pattern: str, why: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_pattern(pattern)
    assert str(refused.value) == f"error parsing regexp: {why}"


HOSTILE = [
    ("^(a+)+$", "a" * 5_000 + "!", False),
    ("^(a+)+$", "a" * 5_000, True),
    ("^(a|a)*$", "a" * 5_000 + "!", False),
    ("^(a|aa)+$", "a" * 5_000 + "!", False),
    ("(.*)*x", "a" * 5_000, False),
    ("^a*a*a*a*a*b$", "a" * 5_000, False),
    ("(a?){50}a{50}", "a" * 50, True),
    ("a+b", "a" * 200_000, False),
    ("^" + "(a|a)" * 40 + "$", "a" * 40 + "!", False),
    ("^" + "a?" * 40 + "a" * 40 + "$", "a" * 39, False),
]


@pytest.mark.parametrize(("pattern", "text", "is_found"), HOSTILE)
def test_no_pattern_takes_longer_than_its_text_is_long(pattern: str, text: str, is_found: bool) -> None:
    compiled = compile_pattern(pattern)
    assert bool(compiled.search(text)) is is_found
    assert is_linear(compiled.search, lambda size: text[:size], len(text) // 2)


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        ("(a|b)+", "ab-ba", ["ab", "ba"]),
        ("(é|x)*", "ééaé", ["éé", "é"]),
        ("(x*)*", "é😀", ["", "", ""]),
        ("(?i)(ä+)+", "ÄäbÄ", ["Ää", "Ä"]),
    ],
)
def test_all_matches_are_found_one_by_one(pattern: str, text: str, value: list[str]) -> None:
    assert [match.group() for match in compile_pattern(pattern).finditer(text)] == value


@pytest.mark.parametrize(
    ("pattern", "why"),
    [("((a{100}){100}){100}", "invalid repeat count: `{100}`")],
)
def test_repeats_of_repeats_are_bounded_as_in_go(pattern: str, why: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_pattern(pattern)
    assert why in str(refused.value)


def test_a_pattern_may_have_ten_thousand_characters() -> None:
    assert compile_pattern("a" * MAX_LENGTH)
    with pytest.raises(PatternError, match="expression too large: longer than 10000 characters"):
        compile_pattern("a" * (MAX_LENGTH + 1))


@pytest.mark.parametrize("unit", ["a", "(a|b)", r"\pL", "a?", "[a-z]", r"\x{61}", "(?i:a)", "a{2,3}"])
def test_the_longest_pattern_compiles_in_bounded_time(unit: str) -> None:
    def compile_longest(pattern: str) -> None:
        with suppress(PatternError):  # Some are too large to RE2, too.
            compile_pattern(pattern)

    assert cpu_seconds(compile_longest, unit * (MAX_LENGTH // len(unit))) < 5


def test_deep_groups_are_no_error_of_python() -> None:
    assert compile_pattern("(" * 4_000 + "a" + ")" * 4_000).search("a")
