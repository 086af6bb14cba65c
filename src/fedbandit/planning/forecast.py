"""``plan``: forecasts how many patients per site a federation needs, beside a site alone, pooled rewards and theory.

The answer is for a physician: sentences and tables.
Formulas of rewards, noise and radii are those of ``fedbandit.rules``.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from math import ceil, erf, exp, floor, inf, log, log10, nan, pi, sqrt
from typing import TYPE_CHECKING, NamedTuple

from fedbandit.checks import InvalidArgument, listed
from fedbandit.notebook import forecast_html
from fedbandit.planning.question import CERTAINTY, DAYS_PER_MONTH, Question, Way, means_of_trials
from fedbandit.planning.trials import Curve, OnRun, TrialRunner, rounds_at_most, work_until_sure
from fedbandit.policies import CentralUCB, FedBatch, Policy
from fedbandit.rules import batch
from fedbandit.rules import radius as radii
from fedbandit.rules.batch import break_even_decisions, first_size
from fedbandit.rules.kl import bernoulli_kl
from fedbandit.simulation.run import OnProgress
from fedbandit.world.graph import Graph

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


QUICK = 0.25
"""Of the trials, for a quick answer."""

_WORLDS = 600  # to count the sites at which another arm is best
_MOST = 1e15  # patients


class ForecastTable(NamedTuple):
    """A title, headings (the first one of names), rows of cells, and a sentence below."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Forecast:
    """How many patients per site it takes until the best arm leads for good at 95 % of the sites, and until they know.

    * ``together``: sites that gossip with FedBatch; ``pooled``: all rewards in one place, no privacy; ``alone``: a site
      on its own. Each has curves against patients per site (``fedbandit.planning.trials``).
    * ``given``: ``together``, told to expect the number of patients in question, if there is one.
    * ``share_right_alone``: the share of sites at which the best arm is best for their own patients, too.
    * ``best_alone``: successes of 100 own patients if every site gives the arm that is best for its own patients.
    * ``theory``: patients per site by theory, with what they are.
    """

    question: Question
    together: Curve
    pooled: Curve
    alone: Curve
    given: Curve | None
    share_right_alone: float
    best_alone: float
    theory: Mapping[str, float]

    @property
    def certainty(self) -> float:
        """The share of sites that is meant where nothing else is said: 95 %."""
        return CERTAINTY

    @property
    def ways(self) -> dict[str, Curve]:
        """The three ways to act, by name."""
        together = f"together, epsilon {self.question.epsilon:g}"
        return {together: self.together, "pooled, no privacy": self.pooled, "alone": self.alone}

    @property
    def fewest(self) -> float:
        """No method finds the best arm with 95 % certainty and fewer patients per site."""
        return fewest_patients(self.question)

    @property
    def never_alone(self) -> bool:
        """Whether a site alone never finds the best arm, however many patients it has."""
        return self.share_right_alone < CERTAINTY

    @property
    def compared_at(self) -> float:
        """The patients per site at which all ways are compared: those in question, or as many as it takes together.

        Where that is too many, as many as it takes with pooled rewards.
        """
        if self.question.patients is not None:
            return self.question.patients
        return min(self.together.found if self.together.found < inf else self.pooled.found, self.together.last)

    @cached_property
    def rows(self) -> dict[str, dict[str, float]]:
        """The numbers of each way; ``inf`` where a run was too short to see it, and ``nan`` what then does not exist.

        * ``patients``, ``low``, ``high``: per site, until the best arm leads for good at 95 % of the sites, with the
          interval; ``days`` that takes; ``worse``: those of them who get an arm that is worse on average over all sites
        * ``sure``: patients per site until 95 % of the sites are sure of it; ``days_sure``
        * ``leads``, ``worse_by_then``, ``successes``: after ``compared_at`` patients per site: the share of sites at
          which the best arm leads, patients who got a worse one, successes of 100 own patients
        * ``successes_at_last``: the same in the long run
        """
        rows: dict[str, dict[str, float]] = {}
        for name, curve in self.ways.items():
            low, high = curve.kept.interval
            then = self.given if self.given is not None and curve is self.together else curve
            rows[name] = {
                "patients": curve.found,
                "low": low,
                "high": high,
                "days": self.question.days(curve.found),
                "worse": curve.worse_at(curve.found) if curve.found < inf else nan,
                "sure": curve.known,
                "days_sure": self.question.days(curve.known),
                "leads": then.leads.at(self.compared_at),
                "worse_by_then": then.worse_at(self.compared_at),
                "successes": then.successes_at(self.compared_at),
                "successes_at_last": self.best_alone if name == "alone" else 100.0 * self.question.highest_mean,
            }
        return rows

    @property
    def table(self) -> "pd.DataFrame":
        """``rows`` as a table, with a row for each way."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.rows, orient="index")

    @property
    def tables(self) -> list[ForecastTable]:
        """What the command prints, as texts: how many patients it takes; what so many give; what theory says."""
        worse = "arm worse\non average"
        until = ["", "until it\nleads", "95 % interval", "time", f"get an {worse}", "until sites\nare sure", "time"]
        then = ["", "best arm\nleads", f"got an {worse}", "successes per\n100 own patients", "in the\nlong run"]
        return [
            ForecastTable(
                "Patients per site until the best arm leads for good at 95 % of the sites",
                until,
                [[name, *_until(self, name)] for name in self.ways],
                "The lead is seen in hindsight: nobody can tell yet which arm it is. That takes until the sites are "
                "sure.",
            ),
            ForecastTable(
                f"After {self.compared_at:,.0f} patients per site",
                then,
                [[name, *_by_then(self, name)] for name in self.ways],
                "Worse on average: over all sites. For a site's own patients it may be better: see the successes.",
            ),
            ForecastTable(
                "By theory",
                ["", "patients per site"],
                [[name, f"{number:,.0f}" if number < inf else "-"] for name, number in self.theory.items()],
                "The trial is judged once, at its end; a bandit must stay in the lead, and tries worse arms less and "
                "less.",
            ),
        ]

    @property
    def words(self) -> str:
        """The answer in a few sentences: whether the patients in question suffice, and how many would.

        Then what pooling and acting alone would give.
        """
        question, together, given = self.question, self.together, self.given
        sentences = [_found(question, together)] if given is None else _with_so_many(question, together, given)
        first = f"{_assumed(question)}, {sentences[0][0].lower()}{sentences[0][1:]}"
        others = [*sentences[1:], _pooled(question, self.pooled), _alone(self), _own_patients(self)]
        return " ".join([first, *others])

    @property
    def by_then(self) -> str:
        """Who leads after the patients in question, for good or not; empty if there is no such number."""
        if self.question.patients is None:
            return ""
        together, pooled, alone = (percent(row["leads"]) for row in self.rows.values())
        return (
            f"after {self.question.patients:,} patients it leads, if only for now, at {together} of the sites "
            f"together, {pooled} pooled, {alone} alone"
        )

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """The share of sites at which the best arm leads against patients per site; see ``fedbandit.figures.plan``.

        ``ax``: your own axes to draw into.
        """
        from fedbandit.figures.plan import plan_figure

        return plan_figure(self, ax)

    _repr_html_ = forecast_html


def plan(
    sites: int,
    arms: int,
    gap: float,
    epsilon: float,
    patients_per_day: float = 1.0,
    graph: Graph | str = "ring",
    patients: int | None = None,
    bias: float | None = None,
    seed: int = 0,
    progress: bool | OnProgress = False,
    rate: float | None = None,
    reward_window: float = 0.0,
    quick: bool = False,
) -> Forecast:
    """Forecast how many patients per site it takes until the best arm leads, and until sites know (docs/planning.md).

    * ``gap``: by how much the best arm's chance of success, over all sites, exceeds that of every other arm.
    * ``epsilon``: the privacy of one reward; may be infinite.
    * ``patients_per_day``: at each site.
    * ``graph``: which sites gossip: a ``Graph``, or a text like "ring" or "grid:3x4".
    * ``patients``: also tell what so many patients per site would give.
    * ``bias``: how far an arm's mean at a site may lie from its mean over all sites; default: the gap.
    * ``progress``: True for a progress bar of each run, or lines where there is no terminal; or a function of
      (agent-pulls done, total) of all runs so far. How many runs there are depends on what they find: the total grows.
    * ``rate``: the chance of success of every arm but the best, over all sites; default: 0.5 - gap / 2.
    * ``reward_window``: days until a reward counts; default: it counts at once.
    * ``quick``: a quarter of the trials, for intervals about twice as wide.
    """
    return forecast_of(
        Question.checked(sites, arms, gap, epsilon, patients_per_day, graph, patients, bias, seed, rate, reward_window),
        progress,
        quick,
    )


def forecast_of(question: Question, progress: bool | OnProgress, quick: bool) -> Forecast:
    """``plan`` for a question that was checked."""
    most = rounds_at_most(question.sites, question.arms)
    if question.patients is not None and question.patients > most:
        accepted = f"at most {most:,} with {question.sites} sites and {question.arms} arms"
        raise InvalidArgument("patients", question.patients, accepted)
    if question.waiting > most // 10:
        accepted = f"at most {most // 10 / question.patients_per_day:,.4g} days"
        hint = f"Up to {most:,} patients per site are simulated, and the window must be short beside them."
        raise InvalidArgument("reward_window", question.reward_window, accepted, hint)
    with _display(progress) as show:
        return _forecast(question, partial(TrialRunner, question, show=show, effort=QUICK if quick else 1.0))


_Runner = Callable[[Way, Policy], TrialRunner]

_SECONDS_OF_SEARCH, _SECONDS_OF_START, _SECONDS_PER_WORK = 12.0, 5.0, 2.1e-8
_SURE_PER_RADIUS = 11.0
"""Measured: the patients of the longest run, by those until FedBatch's radius is half the gap."""


def expected_seconds(question: Question, quick: bool, cores: int) -> float:
    """About how long a forecast takes, within a factor of three; what it finds is not known yet.

    Most of it goes into the runs until sites are sure.
    """
    seconds = _SECONDS_OF_SEARCH
    longest = _SURE_PER_RADIUS * patients_until_radius(question, None)
    for rounds in (longest, longest / 2.0):  # together, pooled
        seconds += _SECONDS_PER_WORK * work_until_sure(question, min(rounds, 1e9))
    return (QUICK if quick else 1.0) * seconds / cores + _SECONDS_OF_START


def _forecast(question: Question, runner: _Runner) -> Forecast:
    start, asked = max(32, ceil(4.0 * fewest_patients(question))), question.patients or 0
    # The pooled policy takes rewards at once. Without noise FedBatch is close to it: it releases at each quarter.
    own = CentralUCB(index="thompson") if question.waiting == 0 else FedBatch(inf)
    all_in_one, single = runner("pooled", own), runner("alone", own)
    pooled = all_in_one.search(start, asked)
    together, told = _together(question, max(start, pooled.last // 2), runner)
    if pooled.last < together.found < inf:
        pooled = all_in_one.play(ceil(together.found))  # to compare them there
    given = None
    if question.patients is not None:
        given = _given(question, together, told, runner)
    means = means_of_trials(question, _WORLDS)
    share = float((means.argmax(axis=2) == question.best_arm).mean())
    longest = max(together.last, asked)
    alone = single.search(longest, asked) if share >= CERTAINTY else single.play(min(longest, single.most))
    together = runner("together", _fed_batch(question, told)).until_sure(together)
    pooled = all_in_one.until_sure(pooled)
    if share >= CERTAINTY:
        alone = single.until_sure(alone)
    theory = {
        "no method can do it with fewer (for 95 %, without any privacy)": fewest_patients(question),
        "ordinary randomised trial: equal arms, all rewards in one place": patients_of_equal_arms(question),
        "FedBatch, if it gave the arms in turn: margins of error no longer overlap": patients_until_radius(
            question, told
        ),
        "break-even: with more, gossip beats acting alone (if sites are alike)": break_even_decisions(
            question.epsilon, question.sites, question.arms
        ),
    }
    return Forecast(question, together, pooled, alone, given, share, 100.0 * float(means.max(axis=2).mean()), theory)


def _fed_batch(question: Question, told: int | None) -> FedBatch:
    return FedBatch(question.epsilon, expected_decisions=told)


def _together(question: Question, start: int, runner: _Runner) -> tuple[Curve, int | None]:
    """FedBatch; where its first batches are long beside the answer, told to expect as many patients as that.

    Sites that know how many patients they will have say so, and begin to learn earlier (docs/few-patients.md).
    """
    first = runner("together", _fed_batch(question, None)).search(start)
    if first.found == inf:
        return first, None
    told = ceil(first.found)
    if _same_batches(question, told, None):
        return first, None
    second = runner("together", _fed_batch(question, told)).search(start)
    return (second, told) if second.found < first.found else (first, None)


def _given(question: Question, together: Curve, told: int | None, runner: _Runner) -> Curve:
    """FedBatch told to expect the patients in question."""
    asked = question.patients or 0
    informed = runner("together", _fed_batch(question, asked))
    rounds = min(2 * asked, informed.most)
    if _same_batches(question, asked, told) and together.last >= rounds:
        return together
    return informed.play(rounds)


def _same_batches(question: Question, told: int | None, other: int | None) -> bool:
    sizes = [first_size(expected, question.epsilon, question.arms, question.sites) for expected in (told, other)]
    return sizes[0] == sizes[1]


@contextmanager
def _display(progress: bool | OnProgress) -> Generator[OnRun]:
    """A bar for each run; a function hears of all of them, added up: their number is not known in advance."""
    from fedbandit.progress import progress_bar

    with progress_bar(shown=progress is True) as bar:
        number, before, run = 0, 0, ("", 0, 0)

        def show(name: str, done: int, total: int) -> None:
            nonlocal number, before, run
            if done < run[1] or (name, total) != (run[0], run[2]):  # another run
                number, before = number + 1, before + run[2]
            run = name, done, total
            if callable(progress):
                progress(before + done, before + total)
            else:
                bar(done, total, f"run {number}: {name}")

        yield show


# ---------------------------------------------------------------- what theory says


def fewest_patients(question: Question) -> float:
    """No method can find the best arm with fewer patients per site, not even with all rewards in one place.

    Let every arm be the best one in turn, and p_k(j) be the chance that arm j leads at a site if k is the best. Between
    the worlds of k and a, all N n rewards together differ by a divergence of at most N n kl, kl that of one reward.
    Whatever is computed from them differs by no more: N n kl >= kl(p_k(k), p_a(k)). On average over pairs, and since
    the divergence is convex, that is at least kl(c, (1 - c) / (M - 1)) for the certainty c. Biases are granted to
    whoever decides; kl is the largest that they allow. Patients whose rewards do not count yet are
    added.
    """
    shifted = [(question.highest_mean + b, question.lowest_mean + b) for b in (-question.bias, question.bias)]
    largest = max(max(bernoulli_kl(high, low), bernoulli_kl(low, high)) for high, low in shifted)
    needed = bernoulli_kl(CERTAINTY, (1.0 - CERTAINTY) / (question.arms - 1))
    return needed / (question.sites * largest) + question.waiting


def chance_of_equal_arms(question: Question, patients: float) -> float:
    """The chance that the best arm has the highest mean in a trial of equal arms, all rewards in one place.

    Means are taken for normal. Sites have as many patients of each arm, so that biases cancel and variances average.
    """
    bias_variance = question.bias**2 * (question.sites + 1) / (3.0 * (question.sites - 1))  # of evenly spread numbers
    of_best, of_other = (sqrt(p * (1.0 - p) - bias_variance) for p in (question.highest_mean, question.lowest_mean))
    lead, wider = question.gap * sqrt(patients * question.sites / question.arms) / of_other, of_best / of_other
    step, chance = 0.01, 0.0
    for position in range(-800, 801):
        z = position * step
        below = 0.5 * (1.0 + erf((wider * z + lead) / sqrt(2.0)))
        chance += step * exp(-z * z / 2.0) / sqrt(2.0 * pi) * below ** (question.arms - 1)
    return chance


def patients_of_equal_arms(question: Question) -> float:
    """Patients per site of an ordinary randomised trial with equal arms that pools all rewards, for the certainty."""
    low, high = 0.0, 1.0
    while chance_of_equal_arms(question, high) < CERTAINTY:
        low, high = high, 2.0 * high
    for _ in range(30):
        middle = (low + high) / 2.0
        low, high = (middle, high) if chance_of_equal_arms(question, middle) < CERTAINTY else (low, middle)
    return high


def patients_until_radius(question: Question, expected_decisions: int | None) -> float:
    """Patients per site, arms in turn, until FedBatch's radius is half the gap: then no worse arm looks best.

    The radius is the calibrated one, sqrt(2 log t V / N), for releases at the ends of batches. Patients whose rewards
    do not count yet are added.
    """
    first = batch.first_size(expected_decisions, question.epsilon, question.arms, question.sites)
    noise = batch.laplace_variance(batch.noise_scale(1.0, question.epsilon))
    factor = radii.calibrated_factor(radii.CALIBRATED_ALPHA)
    released, patients = 0, 0.0
    while patients < _MOST:
        released += batch.batch_size(released, first, batch.BATCH_GROWTH)
        patients = float(question.arms * released)
        own = batch.scheduled_variance(
            released, first, batch.BATCH_GROWTH, batch.largest_reward_variance(0.0, 1.0), noise
        )
        deviation = radii.deviation(own / question.sites)
        if 2.0 * radii.calibrated_radius(deviation, factor, sqrt(log(patients))) <= question.gap:
            return patients + question.waiting
    return inf


# ---------------------------------------------------------------- in words

_HARDLY = 0.25
"""Of the way from a guess to certainty: below it, hardly anything was learnt."""

_WAYS_OUT = "It takes a larger epsilon, more sites or a larger gap."


def about(number: float) -> str:
    """To the nearest 5 in the third digit: more would promise too much."""
    step = 1 if number < 100 else 5 * 10 ** (floor(log10(number)) - 2)
    return f"{floor(number / step + 0.5) * step:,}"


def duration(days: float) -> str:
    """Days, months or years, whichever a person would say."""
    if days < 1.0:
        return "less than a day"
    if days < 60.0:
        return f"{days:.0f} day{'' if days < 1.5 else 's'}"
    months = days / DAYS_PER_MONTH
    if months >= 36.0:
        return f"{months / 12.0:,.0f} years"
    return f"{months:.1f} months" if months < 10.0 else f"{months:.0f} months"


def _assumed(question: Question) -> str:
    """What decides the answer and may be another default: how sites differ, and what was given."""
    default = (
        "" if question.has_bias else " (by default: the gap)" if question.bias == question.gap else " (by default)"
    )
    if question.bias == 0.0:
        conditions = ["all sites are alike"]
    else:
        within = f"within {question.bias:g} of its average over all sites{default}"
        conditions = [f"an arm's chance of success at a site is {within}"]
    if question.rate is not None:
        conditions.append(f"the best arm succeeds with {question.highest_mean:g}, the others with {question.rate:g}")
    if question.waiting > 0:
        conditions.append(f"a reward counts after {duration(question.reward_window)}")
    return f"If {listed(conditions)}"


def _found(question: Question, together: Curve) -> str:
    who = f"{question.sites} sites that gossip with epsilon {question.epsilon:g}"
    if together.found == inf:
        return (
            f"{who} need more than {together.last:,} patients per site: by then the best of {question.arms} arms leads "
            f"at {percent(together.leads.at(together.last))} of them. {_WAYS_OUT}"
        )
    return f"{who} need {_how_many(question, together)}"


def _how_many(question: Question, together: Curve) -> str:
    low, high = together.kept.interval
    interval = f"{about(low)} to {about(high)}" if high < inf else f"at least {about(low)}"
    return (
        f"{_so_long(question, together.found)} until the best of {question.arms} arms leads for good at 95 % of them "
        f"(95 % interval: {interval}), at {question.pace}, and "
        f"{_until_sure(question, together)} until the sites can be sure of it. About "
        f"{about(together.worse_at(together.found))} of the first {about(together.found)} get an arm that is worse on "
        "average over all sites."
    )


def _so_long(question: Question, patients: float) -> str:
    return f"about {about(patients)} patients per site ({duration(question.days(patients))})"


def _until_sure(question: Question, curve: Curve) -> str:
    if curve.known == inf:
        return f"more than {curve.sure.last:,}"
    return f"about {about(curve.known)} ({duration(question.days(curve.known))})"


def _with_so_many(question: Question, together: Curve, given: Curve) -> list[str]:
    """What the patients in question give, and how many would do."""
    asked, guess = question.patients or 0, 1.0 / question.arms
    chance, (low, _) = given.leads.at(asked), given.leads.interval_at(asked)
    so_many = f"With {asked:,} patients per site at epsilon {question.epsilon:g}"
    right = f"the arm that leads is the best one with a chance of {percent(chance)}"
    if chance >= CERTAINTY:
        worse = f"about {about(given.worse_at(asked))} patients per site get an arm that is worse on average"
        sure = f"{percent(given.sure.at(asked))} of the sites are sure of it by then"
        return [f"{so_many} {right}; {sure}, and {worse}."]
    if low <= guess:
        learnt = f"nothing can be learnt: {right}, a guess with {percent(guess)}"
    elif chance < guess + _HARDLY * (1.0 - guess):
        learnt = f"hardly anything can be learnt: {right}, a guess with {percent(guess)}"
    else:
        learnt = f"{right} only"
    if together.found < inf:
        return [f"{so_many} {learnt}.", f"It takes {_how_many(question, together)}"]
    return [f"{so_many} {learnt}. Even {together.last:,} would not do. {_WAYS_OUT}"]


def _pooled(question: Question, pooled: Curve) -> str:
    if pooled.found == inf:
        return f"Even with all rewards in one place and no privacy, {pooled.last:,} patients per site would not do."
    return (
        f"With all rewards in one place and no privacy it would take {_so_long(question, pooled.found)}, and "
        f"{_until_sure(question, pooled)} to be sure."
    )


def _alone(forecast: "Forecast") -> str:
    alone = forecast.alone
    if forecast.never_alone:
        return (
            f"A site alone may never find it: at {percent(1.0 - forecast.share_right_alone)} of the sites another arm "
            "is better for their own patients, and alone they settle on that one."
        )
    if alone.found == inf:
        return f"A site alone would need more than {alone.last:,} patients."
    return (
        f"A site alone would need about {about(alone.found)} ({duration(forecast.question.days(alone.found))}), and "
        f"{_until_sure(forecast.question, alone)} to be sure."
    )


def _own_patients(forecast: "Forecast") -> str:
    """Whom acting alone serves better: the site's own patients, in the end, where sites differ."""
    together, _, alone = forecast.rows.values()
    then = f"After {about(forecast.compared_at)} patients per site"
    now = f"{together['successes']:.1f} of 100 own patients succeed together, {alone['successes']:.1f} alone"
    last = [f"{row['successes_at_last']:.1f}" for row in (together, alone)]
    if last[0] == last[1]:
        return f"{then} {now}; in the long run {last[0]} do either way."
    is_better_now = alone["successes"] > together["successes"]
    when = "both by then and in the long run" if is_better_now else "in the long run"
    return (
        f"{then} {now}; in the long run {last[0]} do together and {last[1]} alone: for a site's own patients acting "
        f"alone is better {when}."
    )


def percent(share: float) -> str:
    """A share, rounded; nothing becomes 0 or 100 % by that."""
    if 0.0 < share <= 0.005:
        return "less than 1 %"
    return "more than 99 %" if 0.995 <= share < 1.0 else f"{100.0 * share:.0f} %"


def _until(forecast: "Forecast", name: str) -> list[str]:
    row, curve = forecast.rows[name], forecast.ways[name]
    never = name == "alone" and forecast.never_alone
    cells = ["never" if never else f"more than {curve.last:,}", "-", "-", "-"]
    if row["patients"] < inf:
        interval = f"{row['low']:,.0f} to {row['high']:,.0f}" if row["high"] < inf else f"at least {row['low']:,.0f}"
        cells = [f"{row['patients']:,.0f}", interval, duration(row["days"]), _of(row["worse"], row["patients"])]
    if row["sure"] < inf:
        return [*cells, f"{row['sure']:,.0f}", duration(row["days_sure"])]
    return [*cells, "never" if never else f"more than {curve.sure.last:,}", "-"]


def _by_then(forecast: "Forecast", name: str) -> list[str]:
    row = forecast.rows[name]
    return [
        percent(row["leads"]),
        _of(row["worse_by_then"], forecast.compared_at),
        f"{row['successes']:.1f}",
        f"{row['successes_at_last']:.1f}",
    ]


def _of(part: float, whole: float) -> str:
    return f"{part:,.0f} ({100 * part / whole:.0f} %)"
