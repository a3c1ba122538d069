"""Patterns mean here what they mean to Go's regexp."""

from __future__ import annotations

import pytest

from pinnace.schema.patterns import PatternError, compile_pattern

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
    (r"^\/a\-b$", "/a-b", True),
    (r"\B", "", True),
    (r"a(?s)*", "", True),
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
]


@pytest.mark.parametrize(("pattern", "text", "is_found"), FOUND)
def test_a_pattern_finds_what_go_would_find(pattern: str, text: str, is_found: bool) -> None:
    assert bool(compile_pattern(pattern).search(text)) is is_found


@pytest.mark.parametrize(("pattern", "why"), REFUSED)
def test_a_pattern_that_go_refuses_is_refused_in_its_words(pattern: str, why: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_pattern(pattern)
    assert str(refused.value) == f"error parsing regexp: {why}"
