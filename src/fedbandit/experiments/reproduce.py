"""Reproduces the paper's Figure 2, compares its claims with our measurements, and writes a report of both.

The claims come from the paper's section "Experiments". The report is one self-contained HTML file, identical for
identical results.
"""

import html
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fedbandit import theory
from fedbandit.checks import InvalidArgument
from fedbandit.experiments.experiment import Experiment, read_experiment
from fedbandit.experiments.sweep import run_all
from fedbandit.policies import FedUCB
from fedbandit.simulation.parts import written_whole
from fedbandit.simulation.result import Result
from fedbandit.simulation.run import OnProgress, checkpoint_times

FIGURES = {"2a": "figure-2a", "2b": "figure-2b", "2c": "figure-2c"}
QUICK_HORIZON, QUICK_TRIALS = 100_000, 20
_PAPER_RATIOS = {1.0: 1.0, 2.0: 1 / 2, 5.0: 1 / 5}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper about a figure, and our measurement."""

    subject: str
    paper: str
    measured: str
    holds: bool | None  # None: no claim, or this run cannot decide it
    is_made: bool = True  # False: the paper gives no number to compare with


@dataclass(frozen=True)
class PolicyNumbers:
    """A row of the table: one level of privacy."""

    label: str
    regret: float
    lowest: float
    highest: float
    ratio: float  # of regret to that at epsilon = 1, at the paper's time
    best_arm_share: float
    bound: float
    vacuous: bool
    radius_above_1: int | None  # rounds of uniform play until the private radius falls to 1
    messages: float
    megabits: float


@dataclass(frozen=True, eq=False)
class FigureOutcome:
    """The experiment of a figure, and its outcome."""

    figure: str
    experiment: Experiment
    result: Result
    ratio_time: int
    claims: list[Claim]
    numbers: list[PolicyNumbers]
    explanation: str

    @property
    def conclusion(self) -> str:
        """Which of the paper's claims hold in this run, which do not, and which it cannot decide."""
        e = self.experiment
        run = f"{e.trials} trials of {e.horizon:,} rounds"
        sentences: list[str] = []
        for holds, words in (True, "confirm"), (False, "contradict"), (None, "cannot decide"):
            claims = [claim.subject for claim in self.claims if claim.is_made and claim.holds is holds]
            if claims:
                sentences.append(f"{run if not sentences else 'They'} {words}: {'; '.join(claims)}.")
        undecided = any(claim.is_made and claim.holds is None for claim in self.claims)
        if undecided and not _at_paper_scale(e):
            sentences.append("Claims about a million rounds take as many: leave out --quick.")
        return " ".join(sentences)


def experiment_file(name: str) -> Path:
    """An experiment file of this package (in a checkout, of the folder ``experiments``)."""
    for folder in (Path(str(files("fedbandit.experiments"))) / "files", Path(__file__).parents[3] / "experiments"):
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    raise InvalidArgument("experiment", name, "the name of a shipped experiment")


def run_figures(
    figures: Sequence[str], folder: str | Path, quick: bool = False, progress: OnProgress | None = None
) -> list[FigureOutcome]:
    """Run figures of the paper (``"2a"``, ``"2b"``, ``"2c"``), resuming an earlier call in ``folder``."""
    for figure in figures:
        if figure not in FIGURES:
            raise InvalidArgument("figure", figure, f"one of {', '.join(FIGURES)}, all")
    experiments = [_at_scale(read_experiment(experiment_file(FIGURES[figure])), quick) for figure in figures]
    results = run_all(experiments, folder, progress)
    return [outcome_of(*parts) for parts in zip(figures, experiments, results, strict=True)]


def _at_scale(experiment: Experiment, quick: bool) -> Experiment:
    horizon = QUICK_HORIZON if quick else experiment.horizon
    times = {*checkpoint_times(horizon, 200).tolist(), _ratio_time(horizon)}
    trials = QUICK_TRIALS if quick else experiment.trials
    return replace(experiment, horizon=horizon, trials=trials, checkpoints=sorted(times))


def _ratio_time(horizon: int) -> int:
    """The paper compares regrets "when the increase of regret is stable, e.g. t = 6e5" of about 10^6."""
    return round(0.6 * horizon)


def outcome_of(figure: str, experiment: Experiment, result: Result) -> FigureOutcome:
    """Check the paper's claims against a result."""
    time = _ratio_time(experiment.horizon)
    numbers = _numbers(experiment, result, time)
    return FigureOutcome(
        figure=figure,
        experiment=experiment,
        result=result,
        ratio_time=time,
        claims=_claims(experiment, result, numbers, time),
        numbers=numbers,
        explanation=_explanation(experiment, result, time),
    )


def _epsilon(experiment: Experiment, label: str) -> float:
    policy = experiment.policies[label]
    return policy.epsilon if isinstance(policy, FedUCB) else inf


def _numbers(experiment: Experiment, result: Result, time: int) -> list[PolicyNumbers]:
    problem, horizon, summary = experiment.problem, experiment.horizon, result.summary()
    n, m, lambda2 = problem.num_agents, problem.num_arms, problem.graph.lambda2
    gaps: list[float] = problem.gaps.tolist()
    at_time = result.regret.sel(time=time).mean(["trial", "agent"])
    counts_sent = float(np.mean([len(agents) for agents in problem.graph.neighbours])) * horizon
    rows: list[PolicyNumbers] = []
    for label in result.policies:
        epsilon = _epsilon(experiment, label)
        row: Any = summary.loc[label]
        private = epsilon < inf
        bound = (
            theory.fed_bound(gaps, n, m, horizon, lambda2, epsilon)
            if private
            else theory.gossip_bound(gaps, n, m, horizon, lambda2)
        )
        rows.append(
            PolicyNumbers(
                label=label,
                regret=float(row["regret"]),
                lowest=float(row["min"]),
                highest=float(row["max"]),
                ratio=float(at_time.sel(policy=label) / at_time[0]),
                best_arm_share=float(row["best_arm_share"]),
                bound=bound,
                vacuous=theory.is_vacuous(bound, gaps, horizon),
                radius_above_1=theory.rounds_above(1.0, n, m, horizon, epsilon) if private else None,
                messages=float(row["messages"]),
                # theta: 64 bits for each arm; n~: 32 bits for each arm to every neighbour in every round
                megabits=m * (64 * float(row["messages"]) + 32 * counts_sent) / 1e6,
            )
        )
    return rows


def _claims(experiment: Experiment, result: Result, numbers: list[PolicyNumbers], time: int) -> list[Claim]:
    graph = experiment.problem.graph
    private = [row for row in numbers if _epsilon(experiment, row.label) in _PAPER_RATIOS]
    wanted = [_PAPER_RATIOS[_epsilon(experiment, row.label)] for row in private]
    measured, regrets = [row.ratio for row in private], [row.regret for row in numbers]
    close = all(abs(ratio - want) <= 0.15 * want for ratio, want in zip(measured, wanted, strict=True))
    claimed = "hospital" not in experiment.name  # "in both figures": (a) and (b)
    return [
        Claim("lambda_2", "0.5" if graph.num_agents == 3 else "about 0.99", f"{graph.lambda2:.5f}", None, False),
        Claim(
            f"regret at t = {time:,} for epsilon 1, 2, 5",
            "about 1 : 1/2 : 1/5 at t = 6e5" if claimed else "(no ratio given)",
            " : ".join(f"{ratio:.2f}" for ratio in measured),
            close if claimed and _at_paper_scale(experiment) else None,
            claimed,
        ),
        Claim(
            "more privacy, more regret",
            "regret falls with epsilon (Theorem 2)",
            " > ".join(f"{regret:,.0f}" for regret in regrets),
            regrets == sorted(regrets, reverse=True),
        ),
        _logarithm(experiment, result),
    ]


def _at_paper_scale(experiment: Experiment) -> bool:
    """Whether a run is long enough to decide claims about a million rounds."""
    return experiment.horizon >= 10**6


def _logarithm(experiment: Experiment, result: Result) -> Claim:
    """Theorem 1: O(log T). A regret of a + b log t grows by equal amounts in equal stretches of log t."""
    curve = result.regret.isel(policy=-1).mean(["trial", "agent"])
    horizon = experiment.horizon
    early, middle, late = (float(curve.sel(time=t, method="nearest")) for t in (horizon / 100, horizon / 10, horizon))
    growth = (late - middle) / (middle - early)
    share = (late - middle) / ((horizon - horizon / 10) * float(np.mean(experiment.problem.gaps)))
    verdict = True if growth < 1.5 else False if growth > 10**0.5 else None
    return Claim(
        "without privacy, regret grows like log T",
        "O(log T) (Theorem 1)",
        f"the last decade added {growth:.1f} times as much as the one before (log: 1, linear: 10); "
        f"{100 * share:.1f} % of what uniform play loses in it",
        verdict if _at_paper_scale(experiment) else None,
    )


def _explanation(experiment: Experiment, result: Result, time: int) -> str:
    """Explains the ratios, in sentences that a reader can check."""
    problem, horizon = experiment.problem, experiment.horizon
    private, public = result.policies[0], result.policies[-1]
    epsilon = _epsilon(experiment, private)
    wide = theory.rounds_above(1.0, problem.num_agents, problem.num_arms, horizon, epsilon)
    uniform = time * float(problem.gaps.mean())
    at_time = result.regret.sel(time=time).mean(["trial", "agent"]) / uniform
    error = float(result.theta_error.sel(policy=private).isel(time=-1).mean())
    pulls = result.pulls.sel(policy=private).isel(time=-1).mean(["trial", "agent"]).values
    radius = np.mean([theory.private_radius(n, horizon, problem.num_agents, horizon, epsilon) for n in pulls])
    command = f"fedbandit theory --graph {problem.graph.name} --arms {problem.num_arms} --horizon {horizon:g}"
    return (
        f"At epsilon = {epsilon:g} the radius C~ of Lemma 6 stays above 1, the whole range of the means, until "
        f"t = {wide:,} of uniform play ({command} --epsilon {epsilon:g}): up to t = {time:,} agents lost "
        f"{100 * float(at_time.sel(policy=private)):.0f} % of what uniform play loses, and without privacy "
        f"{100 * float(at_time.sel(policy=public)):.1f} %. The radius costs, not the noise: at the end "
        f"theta is off by {error:.4f} on average, while C~ allows for {radius:.2f}; so the ratios follow the constants "
        f"of C~ (compare the experiment files whose names end in -constants)."
    )


# ---------------------------------------------------------------- the report


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


def write_report(outcomes: Sequence[FigureOutcome], path: str | Path, command: str) -> Path:
    """Write the page atomically, into a folder that exists."""
    target = Path(path)
    with written_whole(target) as part:
        part.write_text(_page(outcomes, command), encoding="utf-8")
    return target


def _page(outcomes: Sequence[FigureOutcome], command: str) -> str:
    first = outcomes[0]
    scale = f"{first.experiment.trials} trials of {first.experiment.horizon:,} rounds"
    if first.experiment.horizon < 10**6:
        scale += " (the paper has a million rounds, ten times as many: its claims about them are not decided here)"
    body = [
        "<h1>Figure 2 of &ldquo;Federated Bandit: A Gossiping Approach&rdquo;, reproduced</h1>",
        f'<p class="lead">{html.escape(scale)}. Fed_UCB with its privacy repaired and its radius with the constants as '
        "printed.</p>",
        *(_section(outcome) for outcome in outcomes),
        _footer(outcomes, command),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>Figure 2, reproduced by fedbandit</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _section(outcome: FigureOutcome) -> str:
    title = html.escape(outcome.experiment.name)
    figure = outcome.result.plot(band="minmax", scale="both")
    caption = "Regret averaged over trials and agents; the band spans smallest to largest trial, as in the paper."
    return "\n".join(
        [
            f'<section id="figure-{outcome.figure}">',
            f"<h2>{title}</h2>",
            f'<figure role="img" aria-label="{title}">{_svg(figure, outcome.figure)}',
            f"<figcaption>{caption}</figcaption></figure>",
            _table(
                ["", "the paper says", "we measured", ""],
                [[claim.subject, claim.paper, claim.measured, _verdict(claim)] for claim in outcome.claims],
            ),
            f"<p>{html.escape(outcome.conclusion)}</p>",
            f"<p>{html.escape(outcome.explanation)}</p>",
            _numbers_table(outcome),
            "<details><summary>the experiment file</summary>",
            f"<pre>{html.escape(outcome.experiment.text)}</pre></details>",
            "</section>",
        ]
    )


def _verdict(claim: Claim) -> str:
    if claim.holds is None:
        return ""
    return '<span class="yes">holds</span>' if claim.holds else '<span class="no">does not hold</span>'


def _numbers_table(outcome: FigureOutcome) -> str:
    headings = ["policy", "regret", "smallest to largest trial", f"ratio at {outcome.ratio_time:,}", "best arm"]
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
        for row in outcome.numbers
    ]
    note = (
        "Regret, messages and bits are per agent at the end. A bound is vacuous if it exceeds the largest gap times "
        "T, the most that anyone can lose. Bits: 64 per number of an estimate, 32 per count, sent to every "
        "neighbour in every round."
    )
    return _table(headings, rows, numeric_from=1) + f"<p><small>{note}</small></p>"


def _footer(outcomes: Sequence[FigureOutcome], command: str) -> str:
    versions = json.loads(outcomes[0].result.dataset.attrs["versions"])
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    seeds = ", ".join(f"{f.figure}: {f.experiment.seed}" for f in outcomes)
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
