"""Says in a few sentences and tables, to a physician, what a forecast found."""

from math import floor, inf, log10
from typing import TYPE_CHECKING, NamedTuple

from fedbandit.checks import listed
from fedbandit.planning.question import CERTAINTY, DAYS_PER_MONTH, Question
from fedbandit.planning.trials import Curve

if TYPE_CHECKING:
    from fedbandit.planning.forecast import Forecast


_HARDLY = 0.25
"""Of the way from a guess to certainty: below it, hardly anything was learnt."""

_WAYS_OUT = "It takes a larger epsilon, more sites or a larger gap."


def about(number: float) -> str:
    """To the nearest 5 in the third digit: more would promise too much."""
    step = 1 if number < 100 else 5 * 10 ** (floor(log10(number)) - 2)
    return f"{floor(number / step + 0.5) * step:,}"


def pace(question: Question) -> str:
    """How many patients a site has in a day."""
    patients = question.patients_per_day
    return f"{patients:g} patient{'' if patients == 1 else 's'} per site and day"


def duration(days: float) -> str:
    """Days, months or years, whichever a person would say."""
    if days < 1.0:
        return "less than a day"
    if days < 60.0:
        return f"{days:.0f} day{'' if days < 1.5 else 's'}"
    months = days / DAYS_PER_MONTH
    return (
        f"{months:.1f} months"
        if months < 10.0
        else f"{months:.0f} months"
        if months < 36.0
        else f"{months / 12.0:,.0f} years"
    )


def in_words(forecast: "Forecast") -> str:
    """Whether the patients in question suffice; how many would; what pooling and acting alone would give."""
    question, together, given = forecast.question, forecast.together, forecast.given
    sentences = [_found(question, together)] if given is None else _with_so_many(question, together, given)
    first = f"{_assumed(question)}, {sentences[0][0].lower()}{sentences[0][1:]}"
    others = [*sentences[1:], _pooled(question, forecast.pooled), _alone(forecast), _own_patients(forecast)]
    return " ".join([first, *others])


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


def by_then(forecast: "Forecast") -> str:
    """Who leads after the patients in question, for good or not; empty if there is no such number."""
    if forecast.question.patients is None:
        return ""
    together, pooled, alone = (percent(row["leads"]) for row in forecast.rows.values())
    return (
        f"after {forecast.question.patients:,} patients it leads, if only for now, at {together} of the sites "
        f"together, {pooled} pooled, {alone} alone"
    )


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
        f"(95 % interval: {interval}), at {pace(question)}, and "
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


# ---------------------------------------------------------------- tables


class ForecastTable(NamedTuple):
    """A title, headings (the first one of names), rows of cells, and a sentence below."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    note: str = ""


def tables_of(forecast: "Forecast") -> list[ForecastTable]:
    """How many patients it takes; what so many give; what theory says."""
    worse = "arm worse\non average"
    until = ["", "until it\nleads", "95 % interval", "time", f"get an {worse}", "until sites\nare sure", "time"]
    then = ["", "best arm\nleads", f"got an {worse}", "successes per\n100 own patients", "in the\nlong run"]
    return [
        ForecastTable(
            "Patients per site until the best arm leads for good at 95 % of the sites",
            until,
            [[name, *_until(forecast, name)] for name in forecast.ways],
            "The lead is seen in hindsight: nobody can tell yet which arm it is. That takes until the sites are sure.",
        ),
        ForecastTable(
            f"After {forecast.compared_at:,.0f} patients per site",
            then,
            [[name, *_by_then(forecast, name)] for name in forecast.ways],
            "Worse on average: over all sites. For a site's own patients it may be better: see the successes.",
        ),
        ForecastTable(
            "By theory",
            ["", "patients per site"],
            [[name, f"{number:,.0f}" if number < inf else "-"] for name, number in forecast.theory.items()],
            "The trial is judged once, at its end; a bandit must stay in the lead, and tries worse arms less and less.",
        ),
    ]


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
