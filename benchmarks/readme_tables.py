"""Tables of benchmarks/README.md: a script replaces what stands between its own two markers, and nothing else."""

import math
import os
import platform
import statistics
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

README = Path(__file__).resolve().parent / "README.md"


def processor() -> str:
    """The processor's name, where the system tells it."""
    path = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in path.read_text().splitlines() if "model name" in line]
        if path.exists()
        else []
    )
    return names[0] if names else platform.processor()


def where_and_when() -> str:
    """The machine, how busy it is, the Python and the date."""
    return (
        f"{processor()}, {os.cpu_count()} cores (load {os.getloadavg()[0]:.1f} at the end), "
        f"Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}"
    )


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; the first ``left`` columns are text, the others numbers."""
    lines = [headings, ["---" if k < left else "---:" for k in range(len(headings))], *rows]
    if any(len(line) != len(headings) for line in lines):
        raise ValueError(f"a row has not {len(headings)} cells")
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rounded(value: float, letters: bool = True) -> str:
    """Three digits, with letters if wanted: 12,345 is 12.3 k or 12,300."""
    if value <= 0.0 or not math.isfinite(value):
        return f"{value:g}"
    if not letters and value >= 1000.0:
        return f"{float(f'{value:.2e}'):,.0f}"
    for unit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")):
        if value >= 0.9995 * unit or unit == 1.0:
            scaled = float(f"{value / unit:.2e}")
            digits = max(0, 2 - math.floor(math.log10(scaled)))
            return f"{scaled:.{digits}f}{letter}"
    raise AssertionError


def spread(values: Sequence[float], letters: bool = True) -> str:
    """The median, and from where to where."""
    middle, low, high = (rounded(it, letters) for it in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low} to {high})"


def wrapped(content: str) -> str:
    """Lines of prose wrapped as those of other documents; rows of tables as they are."""
    return "\n".join(
        line if line.startswith("|") else textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False)
        for line in content.strip().splitlines()
    )


def replaced(text: str, name: str, content: str) -> str:
    """``text`` with this content between the markers of this name."""
    begin, end = f"<!-- {name}: written by a script -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
        raise ValueError(f"{README.name} must have {begin!r}, then {end!r}, once")
    return text[: text.index(begin)] + f"{begin}\n\n{wrapped(content)}\n\n" + text[text.index(end) :]


def write(name: str, content: str) -> None:
    """Replace a script's part of the README."""
    README.write_text(replaced(README.read_text(encoding="utf-8"), name, content), encoding="utf-8")
