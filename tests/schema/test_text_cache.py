"""Results for short texts are cached."""

from __future__ import annotations

from pinnace.schema.text_cache import LONGEST, cache_short_texts


def test_short_texts_are_computed_once_and_long_ones_each_time() -> None:
    seen: list[str] = []

    @cache_short_texts(2)
    def size(text: str) -> int:
        seen.append(text)
        return len(text)

    short, long = "x" * LONGEST, "x" * (LONGEST + 1)
    assert [size(short), size(short), size(long), size(long)] == [LONGEST, LONGEST, LONGEST + 1, LONGEST + 1]
    assert seen == [short, long, long]
    size("a"), size("b"), size(short)
    assert seen[-3:] == ["a", "b", short], "only so many are kept"
