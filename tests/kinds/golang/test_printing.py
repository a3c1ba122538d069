"""A struct is printed by its Go names, in Go's order, with zero values spelled out."""

from __future__ import annotations

from pinnace.kinds.golang.printing import GoStruct

POINT = GoStruct("X=0 Y=0")


def test_absent_fields_are_printed_as_gos_zero_value() -> None:
    struct = GoStruct("Name='' ReadOnly=false Count=0 Labels")
    assert struct.view({}) == {"Name": "", "ReadOnly": False, "Count": 0, "Labels": None}


def test_a_wire_name_is_the_go_name_with_a_small_first_letter_unless_given() -> None:
    assert GoStruct("VolumeID='' FSType:fsType=''").view({"volumeID": "v", "fsType": "ext4"}) == {
        "VolumeID": "v",
        "FSType": "ext4",
    }


def test_structs_nest_as_values_pointers_and_lists() -> None:
    struct = GoStruct("Here There All", Here=POINT, There=POINT, All=POINT, inline=("Here",))
    assert struct.view({"all": [{"x": 1}]}) == {"Here": {"X": 0, "Y": 0}, "There": None, "All": [{"X": 1, "Y": 0}]}


def test_maps_are_printed_in_the_order_of_their_keys() -> None:
    assert list(GoStruct("Labels").view({"labels": {"b": "1", "a": "2"}})["Labels"]) == ["a", "b"]
