"""Writes the report of ``fedbandit reproduce``: one self-contained HTML file, identical for identical results."""

import html
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from fedbandit.experiments.reproduce import Claim, Finding

__all__ = ["write_report"]

_STYLE = """
:root { color-scheme: light; --ink: #1a1a1a; --soft: #5a5a5a; --line: #d8d8d8; --good: #00694d; --bad: #a33b00; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff; max-width: 66rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
p.lead, footer { color: var(--soft); } figure { margin: 1rem 0; } figcaption { color: var(--soft); font-size: .9rem; }
figure svg { width: 100%; height: auto; }
.scroll { overflow-x: auto; }
td:first-child { white-space: nowrap; }
table { border-collapse: collapse; margin: .8rem 0; font-size: .92rem; }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
.yes { color: var(--good); font-weight: 600; } .no { color: var(--bad); font-weight: 600; }
code { background: #f4f4f4; padding: .1rem .3rem; }
"""


def write_report(findings: Sequence[Finding], path: str | Path, command: str) -> Path:
    """Write the page atomically."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    part.write_text(_page(findings, command), encoding="utf-8")
    part.replace(target)
    return target


def _page(findings: Sequence[Finding], command: str) -> str:
    first = findings[0]
    scale = f"{first.experiment.trials} trials of {first.experiment.horizon:,} rounds"
    if first.experiment.horizon < 10**6:
        scale += " (the paper has a million rounds, ten times as many: its claims about them are not decided here)"
    body = [
        "<h1>Figure 2 of &ldquo;Federated Bandit: A Gossiping Approach&rdquo;, reproduced</h1>",
        f'<p class="lead">{html.escape(scale)}. Fed_UCB with its privacy repaired and its radius with the constants as '
        "printed.</p>",
        *(_section(finding) for finding in findings),
        _footer(findings, command),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>Figure 2, reproduced by fedbandit</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _section(finding: Finding) -> str:
    title = html.escape(finding.experiment.name)
    figure = finding.result.plot(band="minmax", scale="both")
    caption = "Regret averaged over trials and agents; the band spans smallest to largest trial, as in the paper."
    return "\n".join(
        [
            f'<section id="figure-{finding.figure}">',
            f"<h2>{title}</h2>",
            f'<figure role="img" aria-label="{title}">{_svg(figure, finding.figure)}',
            f"<figcaption>{caption}</figcaption></figure>",
            _table(
                ["", "the paper says", "we measured", ""],
                [[claim.subject, claim.paper, claim.measured, _verdict(claim)] for claim in finding.claims],
            ),
            f"<p>{html.escape(finding.explanation)}</p>",
            _numbers_table(finding),
            "<details><summary>the experiment file</summary>",
            f"<pre>{html.escape(finding.experiment.text)}</pre></details>",
            "</section>",
        ]
    )


def _verdict(claim: Claim) -> str:
    if claim.holds is None:
        return ""
    return '<span class="yes">holds</span>' if claim.holds else '<span class="no">does not hold</span>'


def _numbers_table(finding: Finding) -> str:
    headings = ["policy", "regret", "smallest to largest trial", f"ratio at {finding.ratio_time:,}", "best arm"]
    headings += ["theorem's bound", "C~ above 1 until", "estimates sent", "Mbit sent"]
    rows = [
        [
            row.label,
            f"{row.regret:,.0f}",
            f"{row.lowest:,.0f} to {row.highest:,.0f}",
            f"{row.ratio:.3f}",
            f"{100 * row.best_arm_share:.1f} %",
            f"{row.bound:,.0f}" + (" (vacuous)" if row.vacuous else ""),
            "" if row.radius_above_1 is None else f"{row.radius_above_1:,}",
            f"{row.messages:,.0f}",
            f"{row.megabits:,.0f}",
        ]
        for row in finding.numbers
    ]
    note = (
        "Regret, messages and bits are per agent at the end. A bound is vacuous if it exceeds the largest gap times "
        "T, the most that anyone can lose. Bits: 64 per number of an estimate, 32 per count, sent to every "
        "neighbour in every round."
    )
    return _table(headings, rows, numeric_from=1) + f"<p><small>{note}</small></p>"


def _footer(findings: Sequence[Finding], command: str) -> str:
    versions = json.loads(findings[0].result.dataset.attrs["versions"])
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    seeds = ", ".join(f"{f.figure}: {f.experiment.seed}" for f in findings)
    return (
        f"<footer><p>Made by <code>{html.escape(command)}</code>. Seeds of the trials: {html.escape(seeds)}; "
        f"the means come from the seeds in the experiment files. Versions: {html.escape(said)}.</p></footer>"
    )


def _table(headings: list[str], rows: list[list[str]], numeric_from: int | None = None) -> str:
    def cell(tag: str, position: int, text: str) -> str:
        numeric = ' class="number"' if numeric_from is not None and position >= numeric_from else ""
        return f"<{tag}{numeric}>{text if text.startswith('<span') else html.escape(text)}</{tag}>"

    head = "".join(cell("th", k, heading) for k, heading in enumerate(headings))
    body = "".join("<tr>" + "".join(cell("td", k, text) for k, text in enumerate(row)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _svg(figure: Figure, name: str) -> str:
    """A figure as deterministic SVG, with ids that do not clash."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'id="([^"]+)"', rf'id="f{name}-\1"', drawing)
    drawing = re.sub(r"url\(#([^)]+)\)", rf"url(#f{name}-\1)", drawing)
    return re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#f{name}-\1"', drawing)
