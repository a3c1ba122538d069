"""The program of the image openweb/git-sync, for a machine without a network: a page that names the repository."""

from __future__ import annotations

import os
import time
from pathlib import Path

page = Path(os.environ["GIT_SYNC_DEST"]) / "index.html"
page.write_text(f"<h1>Served from {os.environ['GIT_SYNC_REPO']}</h1>\n")
while True:
    time.sleep(3600)
