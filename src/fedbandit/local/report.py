"""Summarises a run of ``fedbandit up`` in numbers, tables, words and a figure, from its visits and the agents' states.

An operator may add arms while it runs: they come after the problem's arms, at each site in an order of its own.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedbandit.checks import listed
from fedbandit.figures.regret import COLOURS, DASHES, MARKERS, STYLE, plain_text
from fedbandit.local.up import FederationShown, GraphShown, Run, SiteShown

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LATELY = 200
"""The number of a site's patients that count as the latest."""

KEEPS_UP = 0.9
"""A machine that reaches this share of the requested speed keeps up: a Poisson stream varies, too."""

Table = tuple[str, list[str], list[list[str]]]
"""Title, headings, rows."""


def live_table(run: Run) -> Table:
    """The table while a run lasts."""
    rows: list[list[str]] = []
    for i, name in enumerate(run.setting.names):
        lately = np.asarray(run.visits[i].arms)[-LATELY:]
        state = run.visits[i].state
        bulletins, neighbours = "–", "–"
        if state is not None:
            bulletins = f"{sum(n.received for n in state.neighbours):,}"
            neighbours = f"{sum(n.reachable for n in state.neighbours)} of {len(state.neighbours)}"
        rows.append(
            [
                name,
                f"{len(run.visits[i].arms):,}",
                f"{_per_second(run, i):.1f}",
                _percent(_share(lately, run.setting.problem.best_arm)),
                _leading(run, i, "own_mean") or "–",
                _leading(run, i, "estimate") or "–",
                f"{_regret(run, i):,.1f}",
                neighbours,
                bulletins,
            ]
        )
    headings = ["site", "patients", "per\nsecond", "best arm\nlately", "alone\nso far", "together\nso far", "regret"]
    return f"{run.seconds:.0f} s", [*headings, "neighbours", "bulletins"], rows


def shown(run: Run) -> FederationShown:
    """The federation as its page shows it while a run lasts."""
    setting, problem, means = run.setting, run.setting.problem, _true_means(run)
    return FederationShown(
        title=setting.title,
        graph=GraphShown(edges=[(int(i), int(j)) for i, j in problem.graph.edges]),
        arms=list(means),
        true_means=list(means.values()),
        best_arm=int(problem.best_arm),
        seconds=run.seconds,
        epsilon=setting.epsilon,
        sites=[
            SiteShown(
                name=name,
                url=run.federation.url(name),
                means=[setting.mean(i, k) for k in range(len(means))],
                patients=len(run.visits[i].arms),
                best_share=_share(np.asarray(run.visits[i].arms)[-LATELY:], problem.best_arm),
                regret=_regret(run, i),
                running=run.federation.is_running(name),
                state=run.visits[i].state,
                age=None if (seen := run.visits[i].seen) is None else max(0.0, run.seconds - seen),
            )
            for i, name in enumerate(setting.names)
        ],
    )


def final_table(run: Run) -> Table:
    """What each site has found, alone and together, and its regret."""
    found = numbers(run)
    unanswered = any(site["unanswered"] for site in found["sites"])
    rows = [
        [
            site["name"],
            f"{site['patients']:,}",
            f"{site['patients_per_second']:.1f}",
            site["alone"] or "–",
            site["together"] or "–",
            _percent(site["best_arm_share_last_quarter"]),
            f"{site['regret']:,.1f}",
            f"{site['regret_of_uniform_choice']:,.1f}",
            f"{site['bulletins']:,}",
            f"{site['refused']:,}",
            *([f"{site['unanswered']:,}"] if unanswered else []),
        ]
        for site in found["sites"]
    ]
    headings = [
        "site",
        "patients",
        "per\nsecond",
        "alone\nso far",
        "together\nso far",
        "best arm\nat the end",
        "regret",
    ]
    headings += ["regret if\nuniform", "bulletins", "refused", *(["unanswered"] if unanswered else [])]
    title = f"Best on average over all: {found['best_arm']} (epsilon {found['epsilon']:g}, {run.seconds:.0f} s)"
    return title, headings, rows


def note(run: Run) -> str:
    """Explains the columns, and says whether the machine kept up."""
    setting = run.setting
    lines = [
        "alone, together so far: the arm with the highest mean by the site's own few noisy releases, and by gossip\n"
        "best arm at the end: share of patients in the last quarter who got the arm that is best on average\n"
        "regret: expected successes lost against that arm; if uniform: with arms given at random\n"
        f"A reward counts {setting.terms.reward_window:g} s after its decision, when its reward window ends."
    ]
    slow = [i for i in range(len(setting.names)) if _per_second(run, i) < KEEPS_UP * setting.speed]
    # In a short run this may be chance: allow four standard deviations of a Poisson count.
    expected = setting.speed * run.seconds
    slow = [i for i in slow if len(run.visits[i].at) < expected - 4.0 * expected**0.5]
    if slow:
        reached = min(_per_second(run, i) for i in slow)
        lines.append(
            f"This machine did not keep up: {reached:.1f} patients per second at the slowest site instead of "
            f"{setting.speed:g}."
        )
    late = sum(visits.state.decisions.late for visits in run.visits if visits.state is not None)
    if late:
        lines.append(f"{late} rewards came after their window: they counted as {setting.terms.missing_reward:g}.")
    added = [name for name in _true_means(run) if name not in setting.arms]
    if added:
        lines.append(f"Added during the run, with the average of the other arms as the true mean: {listed(added)}.")
    return "\n".join(lines)


def reading(run: Run) -> str:
    """A summary of the table in words."""
    problem, found = run.setting.problem, numbers(run)
    sites, best = found["sites"], found["best_arm"]
    words: list[str] = []
    undecided = [site["name"] for site in sites if site["together"] != best]
    if undecided:
        lead, verb = float(np.sort(problem.gaps)[1]), "has" if len(undecided) == 1 else "have"
        words.append(
            f"{listed(undecided)} {verb} not found {best} yet, the best on average over all sites: it leads by "
            f"{lead:.3f}, which takes more patients to see."
        )
    else:
        words.append(f"Together all {len(sites)} sites have found {best}, the best on average over all of them.")
    misled = [site for site in sites if site["best_for_own_patients"] != best]
    if misled:
        named = listed([f"{site['name']} ({site['best_for_own_patients']})" for site in misled])
        whose = "its" if len(misled) == 1 else "their"
        words.append(f"Alone, {named} would settle for ever on what is best for {whose} own patients only.")
        right = [site["name"] for site in misled if site["alone"] == best]
        if right:
            words.append(
                f"So far the own numbers of {listed(right)} also point to {best}: few patients there got another arm."
            )
    else:
        words.append("Alone, every site would eventually find the same arm: gossip only finds it sooner.")
    lost = sum(site["regret"] for site in sites)
    uniform = sum(site["regret_of_uniform_choice"] for site in sites)
    words.append(
        f"Learning has cost {lost:,.0f} successes so far; arms given at random would have cost {uniform:,.0f}."
    )
    return "\n".join(words)


def numbers(run: Run) -> dict[str, Any]:
    """All results, ready for JSON."""
    setting, problem = run.setting, run.setting.problem
    sites: list[dict[str, Any]] = []
    for i, name in enumerate(setting.names):
        visits, state = run.visits[i], run.visits[i].state
        patients = len(visits.arms)
        arms, at = np.asarray(visits.arms), np.asarray(visits.at)
        names = _names(run, i)
        pulls = np.bincount(arms, minlength=len(names))
        known = [] if state is None else state.arms
        sites.append(
            {
                "name": name,
                "url": run.federation.url(name),
                "patients": patients,
                "patients_per_second": _per_second(run, i),
                "alone": _leading(run, i, "own_mean"),
                "together": _leading(run, i, "estimate"),
                "best_for_own_patients": setting.arms[int(problem.means[i].argmax())],
                "best_arm_share_last_quarter": _share(arms[at >= 0.75 * run.seconds], problem.best_arm),
                "regret": _regret(run, i),
                "regret_of_uniform_choice": patients * float(problem.gaps.mean()),
                "bulletins": 0 if state is None else sum(n.received for n in state.neighbours),
                "refused": 0 if state is None else sum(state.refused.values()),
                "unanswered": visits.unanswered,
                "late": 0 if state is None else state.decisions.late,
                "arms": [
                    {
                        "name": arm,
                        "patients": int(pulls[k]),
                        "true_mean_here": setting.mean(i, k),
                        "own_mean": known[k].own_mean if k < len(known) else None,
                        "estimate": known[k].estimate if k < len(known) else None,
                    }
                    for k, arm in enumerate(names)
                ],
            }
        )
    return {
        "problem": setting.title,
        "graph": problem.graph.name,
        "epsilon": setting.epsilon,
        "speed": setting.speed,
        "reward_window": setting.terms.reward_window,
        "seed": setting.seed,
        "seconds": run.seconds,
        "state": str(run.federation.folder),
        "best_arm": setting.arms[problem.best_arm],
        "true_means": _true_means(run),
        "sites": sites,
    }


def write_numbers(run: Run, path: Path) -> None:
    """Write ``numbers`` to a file."""
    path.write_text(json.dumps(numbers(run), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def regret_over_time(run: Run, site: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The arrival times of a site's patients, and the regret by then."""
    return np.asarray(run.visits[site].at, dtype=np.float64), np.cumsum(_lost(run, site))


def _regret(run: Run, site: int) -> float:
    return float(_lost(run, site).sum())


def _lost(run: Run, site: int) -> NDArray[np.float64]:
    """What each patient of a site has lost; with an arm that was added, what one given at random loses."""
    gaps = run.setting.problem.gaps
    arms = np.asarray(run.visits[site].arms, dtype=np.int64)
    return np.append(gaps, gaps.mean())[np.minimum(arms, len(gaps))]


def _names(run: Run, site: int) -> list[str]:
    """The arms of a site in its own order: the problem's, those that its state tells, and those given since."""
    state, given = run.visits[site].state, run.visits[site].arms
    names = [*run.setting.arms]
    if state is not None:
        names += [arm.name for arm in state.arms[len(names) :]]
    return names + [f"added arm {k + 1}" for k in range(len(names), max(given, default=-1) + 1)]


def _true_means(run: Run) -> dict[str, float]:
    """The mean of each arm over all sites: of the problem's, then of those that any site has added."""
    problem, setting = run.setting.problem, run.setting
    found = {arm: float(mean) for arm, mean in zip(setting.arms, problem.arm_means, strict=True)}
    added = dict.fromkeys(name for i in range(len(setting.names)) for name in _names(run, i) if name not in found)
    return found | dict.fromkeys(added, float(problem.arm_means.mean()))


def _per_second(run: Run, site: int) -> float:
    return len(run.visits[site].at) / run.seconds if run.seconds > 0.0 else 0.0


def _share(arms: NDArray[Any], best: int) -> float | None:
    return float((arms == best).mean()) if len(arms) else None


def _leading(run: Run, site: int, by: Literal["own_mean", "estimate"]) -> str | None:
    """The arm with the highest mean, by the site's own releases or by gossip; None while it knows none."""
    state = run.visits[site].state
    means = [] if state is None else [getattr(arm, by) for arm in state.arms]
    known = [(mean, -k) for k, mean in enumerate(means) if mean is not None]
    return _names(run, site)[-max(known)[1]] if known else None


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


# ---------------------------------------------------------------- the figure

SPREAD = 0.72
"""The share of an arm's column that its points occupy."""

CROWD = 100
"""Beyond this many, points are drawn smaller."""

NAMED = 21
"""With more sites than this the legend would be larger than the figure."""

POINTS = 500
"""The most points of a curve: more would not be visible."""


def up_figure(run: "Run") -> Figure:
    """Left: means of each arm by a site's own releases (hollow) and by gossip (filled). Right: regret over time."""
    import matplotlib as mpl

    found, setting = numbers(run), run.setting
    many_arms = len(found["true_means"]) > 8
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.35, 1.0))
        _beliefs(left, found, many_arms)
        _losses(right, run, found)
        _name_sites(figure, setting.names)
        figure.suptitle(
            plain_text(
                f"{setting.problem.graph.name}: {sum(site['patients'] for site in found['sites']):,} patients in "
                f"{run.seconds:.0f} s, epsilon {setting.epsilon:g} per reward"
            ),
            fontsize=9,
        )
    return figure


def _name_sites(figure: Figure, names: tuple[str, ...]) -> None:
    from matplotlib.lines import Line2D

    if len(names) > NAMED:
        return
    handles = [
        Line2D([], [], color=_colour(i), linestyle=DASHES[i % len(DASHES)], marker=MARKERS[i % len(MARKERS)])
        for i in range(len(names))
    ]
    columns = min(len(names), int(15 * figure.get_figwidth() / (max(map(len, names)) + 8)))  # as many as fit
    labels = [plain_text(name) for name in names]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2)


def _colour(site: int) -> str:
    return COLOURS[site % len(COLOURS)]


def _beliefs(axes: "Axes", found: dict[str, Any], many_arms: bool) -> None:
    sites = found["sites"]
    count = len(found["true_means"])
    for k, mean in enumerate(found["true_means"].values()):
        axes.hlines(mean, k - 0.45, k + 0.45, color="0.35", linewidth=1.6, zorder=1)
    for i, site in enumerate(sites):
        x = np.arange(count) + SPREAD * ((i + 0.5) / len(sites) - 0.5)
        own, together = _column(found, site, "own_mean"), _column(found, site, "estimate")
        look: dict[str, Any] = {"color": _colour(i), "marker": MARKERS[i % len(MARKERS)], "linestyle": "none"}
        if count * len(sites) > CROWD:
            look |= {"markersize": 2.5, "markeredgewidth": 0.6}
        axes.vlines(x, own, together, color=_colour(i), linewidth=0.7, alpha=0.5, zorder=2)
        axes.plot(x, own, **look, markerfacecolor="white", zorder=3)
        axes.plot(x, together, **look, zorder=4)
    axes.set_xlim(-0.6, count - 0.4)
    names = [plain_text(name) for name in found["true_means"]]
    if many_arms:
        axes.set_xticks(range(count), names, rotation=90, fontsize=6)
    else:
        axes.set_xticks(range(count), [name.replace(" ", "\n", 1) if len(name) > 10 else name for name in names])
    for tick, name in zip(axes.get_xticklabels(), found["true_means"], strict=True):
        tick.set_fontweight("bold" if name == found["best_arm"] else "normal")
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("mean reward")
    axes.set_title("What each site believes (bold: best on average)")
    grey: dict[str, Any] = {"color": "0.35", "marker": "o", "linestyle": "none"}
    axes.plot([], [], **grey, markerfacecolor="white", label="own releases: noisy, may leave [0, 1]")
    axes.plot([], [], **grey, label="by gossip")
    axes.plot([], [], color="0.35", linewidth=1.6, label="true average")
    _explain(axes, 3)


def _column(found: dict[str, Any], site: dict[str, Any], key: str) -> NDArray[np.float64]:
    """A number of each arm at a site, which may know fewer of them or in another order; NaN where there is none."""
    known = {arm["name"]: arm[key] for arm in site["arms"]}
    return np.array([known.get(name) for name in found["true_means"]], dtype=np.float64)


def _explain(axes: "Axes", columns: int) -> None:
    """A legend below the panel, under its axis."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns, frameon=False)


def _losses(axes: "Axes", run: "Run", found: dict[str, Any]) -> None:
    for i in range(len(run.visits)):
        at, lost = regret_over_time(run, i)
        if not len(at):
            continue
        shown = np.unique(np.linspace(0, len(at) - 1, POINTS).astype(int))
        axes.plot(at[shown], lost[shown], color=_colour(i), linestyle=DASHES[i % len(DASHES)])
        axes.plot(at[-1], lost[-1], MARKERS[i % len(MARKERS)], color=_colour(i), clip_on=False, zorder=4)
    uniform = float(np.mean([site["regret_of_uniform_choice"] for site in found["sites"]]))
    random: dict[str, Any] = {"color": "0.55", "linestyle": (0, (4, 3)), "label": "if arms were given at random"}
    axes.plot([0.0, run.seconds], [0.0, uniform], **random, zorder=1)
    axes.set_xlim(0.0, max(run.seconds, 1e-3))
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("seconds", labelpad=1)
    axes.set_ylabel("successes lost against the best arm, per site")
    axes.set_title("What learning costs")
    _explain(axes, 1)
