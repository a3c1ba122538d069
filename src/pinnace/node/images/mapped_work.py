"""The works of the process that `run_as_mapped_root` starts: unpack a layer, remove a tree, give files to a group."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pinnace.node.images.unpacking import UnpackLimits, unpack_layer
from pinnace.node.runtime.embedded.root_file_systems import give_to_group, remove_tree
from pinnace.node.runtime.embedded.subordinate_ids import enter_user_namespace
from pinnace.node.runtime.errors import ImageFailure


def main() -> None:
    work, *arguments = sys.argv[1:]
    if enter_user_namespace() == 1:
        sys.exit("newuidmap or newgidmap has refused to map the ids of /etc/subuid and /etc/subgid")
    try:
        match work, arguments:
            case "unpack", [target, most_bytes, most_entries]:
                limits = UnpackLimits(int(most_bytes), int(most_entries))
                print(unpack_layer(sys.stdin.buffer, Path(target), limits=limits))
            case "remove", [path]:
                remove_tree(Path(path))
            case "give", [group, *paths]:
                give_to_group(paths, int(group))
            case "own", [owner, group, path]:
                os.chown(path, int(owner), int(group))
            case _:
                sys.exit(f"there is no work {work!r} with {len(arguments)} arguments")
    except (ImageFailure, OSError) as error:
        sys.exit(str(error))
