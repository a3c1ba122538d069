"""The directory in which a cluster and its node keep their state, apart from `pinnace up`, which is large to load."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


class UnusableDataDirectory(Exception):
    """The directory cannot be made or written to."""


def use_usual_umask() -> None:
    """Make files with the modes that the code names: with the umask of some shells all users could write to them."""
    os.umask(0o022)


def default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "pinnace"


def make_data_dir(path: Path) -> Path:
    """Return the directory, made if it is missing. Raise UnusableDataDirectory."""
    fix = "choose another with --data-dir, or keep everything in memory with --ephemeral"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            owner, user = _name_of(path.stat().st_uid), _name_of(os.geteuid())
            raise UnusableDataDirectory(
                f"the data directory {path} belongs to {owner}, and {user} may not write to it; {fix}"
            )
    except FileExistsError:
        raise UnusableDataDirectory(f"the data directory {path} is not a directory but a file; {fix}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UnusableDataDirectory(f"the data directory {path} cannot be made ({reason}); {fix}") from None
    return path


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"
