"""A whole federation on this machine with its figure. Needs the extra ``all``."""

import subprocess
import sys
import tempfile
from pathlib import Path

from fedbandit.extras import needs

if __name__ == "__main__":
    needs("this test", "agent", "sim")
    with tempfile.TemporaryDirectory() as scratch:
        up = ["up", "--for", "5s", "--speed", "20", "-o", scratch]
        ran = subprocess.run([sys.executable, "-m", "fedbandit", *up], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert Path(scratch, "live.png").read_bytes().startswith(b"\x89PNG")
    print("three agents served patients, and the figure is drawn")
