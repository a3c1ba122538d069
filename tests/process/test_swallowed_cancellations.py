"""`tools/tasks.py` refuses code that hides the end of a task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_WAY = "async def work():\n    try:\n        await wait()\n"
CASES = {
    "an except of CancelledError": (_WAY + "    except asyncio.CancelledError:\n        pass\n", True),
    "a bare except": (_WAY + "    except:\n        pass\n", True),
    "one of several": (_WAY + "    except (OSError, BaseException):\n        return\n", True),
    "it is raised again": (_WAY + "    except asyncio.CancelledError:\n        close()\n        raise\n", False),
    "an except of Exception": (_WAY + "    except Exception:\n        pass\n", False),
    "suppress": ("with contextlib.suppress(asyncio.CancelledError):\n    pass\n", True),
    "suppress of others": ("with contextlib.suppress(OSError):\n    pass\n", False),
    "gather": ("async def work():\n    await asyncio.gather(*works, return_exceptions=True)\n", True),
    "a task without an owner": ("async def work():\n    asyncio.create_task(wait())\n", True),
    "a task of a group": ("async def work():\n    group.create_task(wait())\n", False),
}


@pytest.mark.parametrize(("code", "is_refused"), CASES.values(), ids=CASES)
def test_code_that_hides_the_end_of_a_task_is_refused(tmp_path: Path, code: str, is_refused: bool) -> None:
    place = tmp_path / "src" / "pinnace"
    place.mkdir(parents=True)
    (place / "odd.py").write_text(code)
    command = [sys.executable, str(_ROOT / "tools" / "tasks.py"), "src/pinnace"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.stderr == ""
    assert (checked.returncode, "odd.py" in checked.stdout) == (int(is_refused), is_refused)
