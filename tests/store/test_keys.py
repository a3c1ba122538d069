"""Keys in order, against a plain set that is sorted each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pinnace.store.store import SortedKeys

names = st.text("abc/", min_size=1, max_size=3)
steps = st.lists(
    st.one_of(st.tuples(st.just("change"), st.lists(names, max_size=90)), st.tuples(st.just("read"), names))
)


@given(start=st.lists(names, unique=True), steps=steps)
def test_keys_are_read_in_order_whatever_was_added_and_removed_between(
    start: list[str], steps: list[tuple[str, list[str] | str]]
) -> None:
    keys, model = SortedKeys(start), set(start)
    for step, given_names in steps:
        if step == "read":
            first = str(given_names)
            assert keys.between(first, None) == sorted(key for key in model if key >= first)
            assert keys.between("", first) == sorted(key for key in model if key < first)
            continue
        for name in given_names:
            if name in model:
                keys.remove(name)
                model.remove(name)
            else:
                keys.add(name)
                model.add(name)
    assert keys.between("", None) == sorted(model)
