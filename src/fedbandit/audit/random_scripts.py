"""Draws scripts at random: any terms, any events, any entries, and other entries for some of the decisions.

Where anything may happen, what must come together rarely does. So each script has a **theme**, a kind of situation:
what matters there is frequent, the entry that changes is one that matters there, and the rest is anything. Themes take
turns, by the number of the script: equal numbers give equal scripts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random  # from the number of a script
from typing import Any, Literal, TypeVar

from fedbandit.agent.core.arms import ChangeKind
from fedbandit.agent.core.context import Factor, Factors
from fedbandit.agent.core.decisions import Request, SiteDraws
from fedbandit.agent.core.evaluation import EvaluatedPolicy, Evaluation, OtherShares
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.guardrails import Guardrails
from fedbandit.agent.core.history import History, PastRewards
from fedbandit.audit.scripts import (
    AcceptArm,
    AcceptFrom,
    Cancel,
    Change,
    ChangeArm,
    Claim,
    Confirm,
    CopyDisk,
    Decide,
    DieAtNextWrite,
    Dismiss,
    Drawn,
    Entry,
    Event,
    Exchange,
    Exclude,
    Expire,
    Jump,
    Link,
    LoseDisk,
    Pause,
    PutBack,
    Refuse,
    Report,
    Restart,
    Restore,
    SaveBoard,
    Say,
    Script,
    SendKept,
    Twin,
    View,
    without_crashes,
)
from fedbandit.checks import Counts
from fedbandit.policies import FedBatch, FedUCB
from fedbandit.policies.protocol import Index
from fedbandit.privacy.noise import GRID
from fedbandit.shares import Shares
from fedbandit.testing.memory_network import Crash

__all__ = ["THEMES", "Dice", "TermsFrom", "Theme", "drawn_script", "terms_of"]

DAY = 86400.0
MEMBERS = ("east", "north", "west")
TRIES = 40  # terms that are drawn for a theme, until it can use them
CHANGES = 4  # of a script

_T = TypeVar("_T")


class Dice(Random):
    """Choices."""

    def pick(self, *options: _T) -> _T:
        """One of them."""
        return options[self.randrange(len(options))]

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.random() < share


TermsFrom = Callable[[Dice], Federation]
"""Draws the terms of a federation."""


# ---------------------------------------------------------------- terms


def terms_of(policy: str, epsilon: float) -> TermsFrom:
    """Any terms of a federation with this policy."""
    return lambda dice: _terms(policy, epsilon, dice)


def _terms(policy: str, epsilon: float, dice: Dice) -> Federation:
    arms = tuple("abcdefg"[: dice.pick(2, 2, 3, 3, 4, 7)])
    low = dice.pick(0.0, 0.0, -1.0, 5.0, 0.1)
    high = low + dice.pick(1.0, 1.0, 4.0, 0.3)
    window = dice.pick(1.0, 1.0, 1.0, DAY) * dice.pick(2.7, 0.0, 0.85, 4.0, 0.0)
    default = dice.pick(None, high, low + 0.31 * (high - low))
    shares = None
    if dice.chance(0.2):
        control = dice.pick(None, "b")
        shares = Shares(control, 0.3 if control else 0.0, dice.pick(0.05, 0.01))
    factors = None
    if dice.chance(0.35):
        levels = (Factor("age", ("old", "young")), Factor("sex", ("f", "m")))
        factors = Factors(levels[: dice.pick(1, 2, 2)])
    common: dict[str, Any] = {
        "reward_window": window,
        "default_reward": default,
        "shares": shares,
        "context": factors,
    }
    if policy == "fed_ucb":
        horizon, most = dice.pick(7, 3, 10, 14), dice.pick(100, 3)
        common["evaluation"], epsilon = _evaluation(dice, factors, epsilon)
        return Federation("audit", arms, low, high, FedUCB(epsilon, horizon=horizon), max_agents=most, **common)
    is_told = factors is not None and dice.chance(0.6)
    index: Index = "thompson" if is_told else dice.pick("thompson", "ucb", "kl")
    if index == "kl" and (low, high) != (0.0, 1.0):
        index = "thompson"
    is_proved = index == "ucb" and not window and not shares and dice.chance(0.5)  # a default would move the mean
    radius: Literal["calibrated", "proved"] = "proved" if is_proved else "calibrated"
    size, growth = dice.pick(3, 4, 4) if is_told else dice.pick(2, 1, 3), dice.pick(1.5, 1.1, 2.0, None)
    counts: Counts = "sites" if is_proved else dice.pick("sites", "patients")
    if counts == "patients":
        common |= {"largest_share": dice.pick(0.5, 0.9), "max_decisions_per_day": dice.pick(None, 100.0)}
    sigma = None if is_proved or is_told else dice.pick(None, None, 0.2)
    if dice.chance(0.25) and sigma is None and not is_told:
        common["guardrails"] = Guardrails("a", dice.pick(0.0, 0.1) * (high - low))
    most = dice.pick(100, 3, 1)
    common["evaluation"], epsilon = _evaluation(dice, factors, epsilon)
    chosen = FedBatch(
        epsilon,
        index=index,
        radius=radius,
        first_batch=size,
        growth=growth,
        sigma=None if radius == "proved" else sigma,
        context="strata" if is_told else "ignore",
    )
    return Federation("audit", arms, low, high, chosen, counts=counts, max_agents=most, **common)


def _evaluation(dice: Dice, factors: Factors | None, epsilon: float) -> tuple[Evaluation | None, float]:
    """Sometimes other policies are evaluated, for a part of epsilon; and what is left of it."""
    _, (*words, place), _ = dice.getstate()
    dice = Dice(1000 * words[0] + place)  # of its own: all else stays what it is
    if not dice.chance(0.25):
        return None, epsilon
    strata = (OtherShares((("age", "old"),), (("b", 1.0),)),) if factors is not None else ()
    mixed = EvaluatedPolicy("mixed", (("a", 0.75), ("b", 0.25)), strata)
    policies = dice.pick((EvaluatedPolicy("always a"), mixed), (EvaluatedPolicy("uniform"),))
    part = dice.pick(0.5, 0.25) * epsilon
    return Evaluation(part, policies, dice.pick(3, 1, 10), dice.pick(2, 1, 3, 5)), epsilon - part


# ---------------------------------------------------------------- themes


@dataclass
class _World:
    """What a script is made of.

    * ``unit``: seconds, by which times are measured
    * ``focus``: the arm that comes most
    * ``asked``: requests with a key, which may be asked again; ``stopped``: what the operator may take back;
      ``added``: arms that he adds
    """

    terms: Federation
    theme: "Theme"
    unit: float
    members: tuple[str, ...]
    focus: int
    asked: list[Decide] = field(default_factory=list[Decide])
    stopped: list[ChangeArm] = field(default_factory=list[ChangeArm])
    added: int = 0

    @property
    def window(self) -> float:
        return self.terms.reward_window

    @property
    def width(self) -> float:
        return self.terms.high - self.terms.low

    def arm(self, dice: Dice) -> str:
        """One of the terms, or a new one."""
        arms = self.terms.arms
        return dice.pick(*3 * (arms[self.focus],), *arms, "new", "newer")


_Maker = Callable[[_World, Dice], Event]
_Place = tuple[int, int, Decide]


@dataclass(frozen=True)
class Theme:
    """A kind of situation.

    * ``makers``: what happens in it beside requests, and is most of that
    * ``wants``: whether it can use these terms
    * ``free``: the share of requests for any arm, so that estimates decide; ``board``: that of scripts that begin with
      bulletins of all arms
    * ``keyed``, ``known``, ``left_out``, ``many``: the shares of requests with a key, of a subject that may come again,
      that leave an arm out, for several arms
    * ``bulk``: the share of rewards that the application keeps, to send several in one call; ``late``: of those that
      do not come at once
    * ``delicate``: decisions of which one is changed, where there are any
    * ``sure``: the share of changes from one end of the range to the other, or to nothing
    * ``requests``: of all events
    * ``plots``: what happens in this order, besides: one of them
    """

    name: str
    makers: tuple[_Maker, ...] = ()
    wants: Callable[[Federation], bool] = lambda _: True
    free: float = 0.25
    board: float = 0.25
    keyed: float = 0.05
    known: float = 0.05
    left_out: float = 0.05
    many: float = 0.2
    bulk: float = 0.1
    late: float = 0.5
    delicate: Callable[[Script], Sequence[_Place]] | None = None
    sure: float = 0.4
    requests: float = 0.6
    changes: int = CHANGES
    history: float = 0.1
    plots: tuple[tuple[_Maker, ...], ...] = ()


def _has_window(terms: Federation) -> bool:
    return terms.reward_window > 0.0


def _has_none(terms: Federation) -> bool:
    return not terms.reward_window


def _has_strata_at_once(terms: Federation) -> bool:
    return terms.num_strata > 0 and not terms.reward_window


def _places_of(script: Script) -> list[_Place]:
    """All decisions."""
    return [
        (number, position, it)
        for number, it in enumerate(script.events)
        if isinstance(it, Decide)
        for position in range(len(it.entries))
    ]


def _cancelled(script: Script) -> list[_Place]:
    """The decisions that are cancelled, if no request is refused."""
    places: list[_Place] = []
    cancelled: list[_Place] = []
    for number, it in enumerate(script.events):
        if isinstance(it, Decide):
            places += [(number, position, it) for position in range(len(it.entries))]
        elif isinstance(it, Cancel) and it.back <= len(places):
            cancelled.append(places[-it.back])
    return cancelled


def _in_bulk(script: Script) -> list[_Place]:
    return [it for it in _places_of(script) if any(report.in_bulk for report in it[2].entries[it[1]])]


def _keyed(script: Script) -> list[_Place]:
    return [it for it in _places_of(script) if it[2].request.key is not None]


def _known(script: Script) -> list[_Place]:
    return [it for it in _places_of(script) if it[2].request.subject is not None]


def _beyond(kinds: type | tuple[type, ...]) -> Callable[[Script], list[_Place]]:
    """The decisions of the time around such an event: the last before it, and those after it."""

    def found(script: Script) -> list[_Place]:
        places = _places_of(script)
        first = next((k for k, it in enumerate(script.events) if isinstance(it, kinds)), len(script.events))
        before = [it for it in places if it[0] < first]
        return before[-4:] + [it for it in places if it[0] > first][:6]

    return found


def _before(kinds: type | tuple[type, ...]) -> Callable[[Script], list[_Place]]:
    """The last decisions before each such event: some are released by then, some are not."""

    def found(script: Script) -> list[_Place]:
        places = _places_of(script)
        each = [k for k, it in enumerate(script.events) if isinstance(it, kinds)]
        return [near for k in each for near in [it for it in places if it[0] < k][-5:]]

    return found


def _first(script: Script) -> list[_Place]:
    """The first few decisions: much comes after them."""
    return _places_of(script)[:4]


# ---------------------------------------------------------------- what happens beside requests


def _member(world: _World, dice: Dice) -> str:
    return dice.pick(*world.members)


def _cancel(_: _World, dice: Dice) -> Event:
    return Cancel(0.0, dice.pick(1, 2, 3, 1, 4, 6, 9))


def _send_kept(_: _World, dice: Dice) -> Event:
    return SendKept(0.0)


def _restart(_: _World, dice: Dice) -> Event:
    return Restart(0.0, dice.chance(0.5), dice.pick(3, 3, 1, 0))


def _expire(world: _World, dice: Dice) -> Event:
    return Expire(0.0, dice.randrange(7), dice.pick(1e12, 1e12, 0.0, 1.0, 3.3) * world.unit)


def _die(_: _World, dice: Dice) -> Event:
    return DieAtNextWrite(0.0, dice.pick("before", "torn", "after"))


def _change_arm(world: _World, dice: Dice) -> Event:
    if world.stopped and dice.chance(0.6):
        return replace(world.stopped.pop(), kind="resume")
    kind: ChangeKind = dice.pick("suspend", "suspend", "suspend", "resume", "add", "add", "retire")
    arm, reason = world.arm(dice), dice.pick("a rash", "a rash", "a rash", "")
    it = ChangeArm(0.0, kind, arm, reason, _levels(world, dice) if kind in ("suspend", "resume") else ())
    if kind == "suspend":
        world.stopped.append(it)
    if kind == "add" and world.added < 2:
        it = replace(it, arm=("new", "newer")[world.added])
        world.added += 1
    return it


def _stop(world: _World, dice: Dice) -> Event:
    """The arm that comes most is suspended, and resumed."""
    if world.stopped:
        return replace(world.stopped.pop(), kind="resume")
    it = ChangeArm(0.0, "suspend", world.terms.arms[world.focus], "a rash", _levels(world, dice))
    world.stopped.append(it)
    return it


def _levels(world: _World, dice: Dice) -> tuple[tuple[str, str], ...]:
    """Of the patients for whom an arm changes; mostly for all."""
    factors = world.terms.context
    if factors is None or dice.chance(0.5):
        return ()
    one = dice.pick(*factors.factors)
    return ((one.name, dice.pick(*one.levels)),)


def _strata(world: _World, dice: Dice) -> tuple[int, ...]:
    factors = world.terms.context
    return () if factors is None or dice.chance(0.6) else (dice.randrange(factors.num_strata),)


def _jump(world: _World, dice: Dice) -> Event:
    return Jump(0.0, dice.pick(0.4, 30.0, -30.0, 3.0, -0.4, 1e5) * world.unit)


def _exclude(world: _World, dice: Dice) -> Event:
    return Exclude(0.0, _member(world, dice), dice.chance(0.4))


def _exchange(world: _World, dice: Dice) -> Event:
    return Exchange(0.0, _member(world, dice))


def _twin(world: _World, dice: Dice) -> Event:
    return Twin(0.0, _member(world, dice))


def _claim(world: _World, dice: Dice) -> Event:
    return Claim(0.0, _member(world, dice))


def _accept_arm(world: _World, dice: Dice) -> Event:
    return AcceptArm(0.0, world.arm(dice), dice.chance(0.5))


def _accept_from(world: _World, dice: Dice) -> Event:
    return AcceptFrom(0.0, dice.pick(None, (), (_member(world, dice),)))


def _refuse(world: _World, dice: Dice) -> Event:
    return Refuse(0.0, dice.pick((), (_member(world, dice),)), dice.chance(0.5))


def _link(_: _World, dice: Dice) -> Event:
    return Link(0.0, dice.randrange(4))


def _lose_disk(_: _World, dice: Dice) -> Event:
    return LoseDisk(0.0)


def _copy_disk(_: _World, dice: Dice) -> Event:
    return CopyDisk(0.0)


def _put_back(_: _World, dice: Dice) -> Event:
    return PutBack(0.0)


def _restore(_: _World, dice: Dice) -> Event:
    return Restore(0.0)


def _confirm(_: _World, dice: Dice) -> Event:
    return Confirm(0.0)


def _pause(_: _World, dice: Dice) -> Event:
    return Pause(0.0)


def _dismiss(_: _World, dice: Dice) -> Event:
    return Dismiss(0.0)


def _save_board(_: _World, dice: Dice) -> Event:
    return SaveBoard(0.0)


def _view(_: _World, dice: Dice) -> Event:
    return View(0.0)


def _say(world: _World, dice: Dice) -> Say:
    """An honest bulletin, or a lie."""
    kinds: tuple[ChangeKind, ...] = ("suspend", "resume", "add", "retire")
    changes = tuple[tuple[ChangeKind, str, tuple[int, ...]], ...](
        (dice.pick(*kinds), world.arm(dice), _strata(world, dice)) for _ in range(dice.pick(0, 0, 0, 1, 2))
    )
    value, many = dice.pick(0.5, 0.5, 1.0, 0.0, -40.0, 1e12), dice.pick(10, 10, 1, 100_000)
    arms = tuple(_said_of_arm(world, dice, arm, value, many) for arm in range(world.terms.num_arms))
    return Say(0.0, _member(world, dice), arms, dice.pick(0, 0, 2), dice.chance(0.1), dice.chance(0.1), changes)


def _said_of_arm(
    world: _World, dice: Dice, arm: int, value: float, many: int
) -> tuple[tuple[float, ...], int, int, int, int]:
    """Row, releases, rewards, decisions, and how many are of before."""
    releases = dice.pick(0, 1, 1, 2, 3)
    count = releases * many
    mean, second = value if arm == 0 else 0.3 + 0.05 * arm, dice.pick(1.0, 0.001, 0.0, GRID * 1.0)
    return _row(world.terms, mean, second, releases), releases, count, count, count if dice.chance(0.25) else 0


def _row(terms: Federation, mean: float, second: float, releases: int) -> tuple[float, ...]:
    if terms.num_strata:
        strata = terms.num_strata
        precision = [second if r == s else 0.0 for s in range(strata) for r in range(s + 1)]
        score = [second * (mean - 0.5) * (1.0 + 0.2 * s) for s in range(strata)]
        return (float(releases), *[1.0] * strata, *score, *precision)
    return (GRID * mean, second, 1.0, 1.0, 1.0, 1.0)[: terms.num_columns]


def _honest(world: _World, dice: Dice, member: str) -> Say:
    """Of all arms, whose means lie close together: then little decides."""
    spread = dice.pick(0.0, 0.02, 0.3)
    rows = [
        _row(world.terms, 0.5 + spread * (dice.random() - 0.5), _usual_second(world.terms, dice), 2)
        for _ in world.terms.arms
    ]
    return Say(0.0, member, tuple((row, 2, 20, 20, 0) for row in rows))


def _usual_second(terms: Federation, dice: Dice) -> float:
    """What the second number of a row is like."""
    name = "precision" if terms.num_strata else [*terms.page.published_names, ""][1]
    return {"variance": (0.05 * GRID) ** 2, "precision": dice.pick(40.0, 400.0)}.get(name, 1.0)


def _say_changes(world: _World, dice: Dice) -> Say:
    """A bulletin with changes of the arms that come most."""
    names = (world.terms.arms[world.focus], dice.pick(*world.terms.arms), "new")
    changes = tuple(_changed_by_others(world, dice, name) for name in dice.pick(names, names[:1], names[:2], names[2:]))
    return replace(_say(world, dice), is_foreign=False, changes=changes)


def _changed_by_others(world: _World, dice: Dice, name: str) -> tuple[ChangeKind, str, tuple[int, ...]]:
    if name == "new":
        return "add", name, ()
    kind: ChangeKind = dice.pick("suspend", "suspend", "resume", "resume", "retire")
    return kind, name, () if kind == "retire" else _strata(world, dice)


def _accept_all(_: _World, dice: Dice) -> Event:
    return AcceptFrom(0.0, None)


def _bad_news(world: _World, dice: Dice) -> Say:
    """The first arm is by far the best, and many rewards say so."""
    rows = [
        _row(world.terms, 0.95 if arm == 0 else 0.05, (0.002 * GRID) ** 2, 20) for arm in range(world.terms.num_arms)
    ]
    return Say(0.0, _member(world, dice), tuple((row, 20, 20_000, 20_000, 0) for row in rows))


ANYTHING: tuple[_Maker, ...] = (
    *(_cancel, _send_kept, _restart, _say, _expire, _die, _change_arm, _jump, _exclude, _exchange, _lose_disk),
    *(_copy_disk, _put_back, _twin, _restore, _confirm, _pause, _claim, _dismiss, _accept_arm, _accept_from),
    *(_refuse, _link, _save_board, _view),
)

_BY_DISK = (LoseDisk, PutBack, Restore, Pause, Twin, Restart)

THEMES = (
    Theme("anything", ANYTHING),
    Theme("estimates decide", (_say,), free=0.9, board=1.0, late=0.2, delicate=_first, requests=0.85),
    Theme("subjects return", (_say,), free=0.9, board=0.9, known=0.8, late=0.2, delicate=_known, requests=0.85),
    Theme("keys are asked again", (_change_arm, _cancel), _has_window, keyed=0.8, late=0.2, delicate=_keyed),
    Theme("arms are left out", (_say,), free=0.3, board=0.9, left_out=0.6, late=0.2, delicate=_first, requests=0.85),
    Theme("several at once", (_say, _send_kept), free=0.9, board=0.9, many=0.8, late=0.2, delicate=_first),
    Theme("bulk", (_send_kept,), bulk=0.85, delicate=_in_bulk, sure=0.6),
    Theme("cancellations", (_cancel,), late=0.8, delicate=_cancelled),
    Theme("crashes", (_restart, _die), delicate=_beyond((Restart, DieAtNextWrite))),
    Theme(
        "another disk",
        (_lose_disk, _copy_disk, _put_back, _restore, _confirm, _exchange),
        late=0.3,
        delicate=_beyond(_BY_DISK),
    ),
    Theme(
        "an old file",
        (_exchange,),
        late=0.2,
        bulk=0.0,
        delicate=_beyond(_BY_DISK),
        requests=0.9,
        plots=(
            (_copy_disk, _put_back, _restore),
            (_copy_disk, _put_back, _restart, _restore),
            (_copy_disk, _put_back, _confirm, _restore),
            (_twin, _restore),
            (_twin, _confirm),
            (_twin, _restart, _restore),
            (_pause, _twin, _restore),
        ),
    ),
    Theme(
        "claims",
        (_exchange, _link),
        late=0.2,
        delicate=_first,
        requests=0.85,
        plots=((_claim, _dismiss), (_claim, _restart, _dismiss), (_claim, _twin, _dismiss), (_claim, _claim, _link)),
    ),
    Theme(
        "consent",
        (_say_changes, _accept_arm),
        late=0.2,
        delicate=_first,
        requests=0.7,
        plots=((_say_changes, _accept_arm), (_stop, _say_changes, _accept_all), (_say_changes, _accept_all, _stop)),
    ),
    Theme(
        "what guards releases",
        (_exchange, _exchange, _claim, _dismiss, _pause, _twin, _link),
        board=0.6,
        late=0.2,
        delicate=_before((Exchange, Claim, Pause)),
        sure=0.7,
    ),
    Theme("pauses", (_pause, _exchange, _exchange, _exchange), late=0.2, delicate=_beyond(Pause), requests=0.5),
    Theme("members", (_say, _exchange, _refuse), board=0.9, late=0.2),
    Theme("some do not count", (_exclude,), _has_none, board=1.0, late=0.0, delicate=_before(Exclude)),
    Theme(
        "their bulletins",
        (_say, _exchange, _save_board, _restart),
        late=0.2,
        delicate=_before((Exchange, SaveBoard)),
        sure=0.7,
        plots=((_say, _save_board, _restart), (_say, _say, _save_board, _restart), ()),
    ),
    Theme("arms stop", (_stop,), _has_none, free=0.1, many=0.1, late=0.0, delicate=_before(ChangeArm), requests=0.65),
    Theme(
        "arms change",
        (*3 * (_change_arm,), _accept_arm, _accept_from, _say),
        late=0.2,
        requests=0.5,
        delicate=_before(ChangeArm),
    ),
    Theme("time", (_jump, _expire), _has_window, late=0.9),
    Theme("forgetting", (_expire,), late=0.4, delicate=_first, sure=0.6),
    Theme("viewers", (_view,), requests=0.8),
    Theme(
        "guardrails",
        (_say,),
        lambda it: it.guardrails is not None,
        free=0.7,
        board=0.6,
        late=0.2,
        sure=0.8,
        plots=((), (), (_bad_news,), (_bad_news, _stop, _stop)),
    ),
    Theme("patients count", (_say, _jump), lambda it: it.counted == "patients", changes=12, sure=0.1),
    Theme("strata", (_say, _restart), lambda it: it.num_strata > 0, free=0.5, board=0.4, late=0.3),
    Theme("strata at once", (_say,), _has_strata_at_once, free=0.1, late=0.0, delicate=_first, requests=0.85),
    Theme("contexts", (_say,), lambda it: it.context is not None, free=0.6, board=0.6, delicate=_first),
    Theme("history", (_restart, _exchange), history=1.0),
)
"""Kinds of situations. Scripts take turns."""


# ---------------------------------------------------------------- a script


def drawn_script(terms_from: TermsFrom, number: int) -> Drawn:
    """The script of this number, with other entries for some of its decisions."""
    dice, theme = Dice(number), THEMES[number % len(THEMES)]
    terms = terms_from(dice)
    for _ in range(TRIES):
        if theme.wants(terms):
            break
        terms = terms_from(dice)
    members = MEMBERS[: dice.pick(1, 2, 2, 3)]
    unit = DAY if terms.reward_window > 1000.0 else 1.0
    world = _World(terms, theme, unit, members, dice.randrange(terms.num_arms))
    script = Script(
        terms,
        tuple(_events(world, dice)),
        terms.reward_window + 2.5 * unit,
        unit,
        unit * dice.pick(1.0, 0.4, 0.15),
        members,
        _history(terms, dice) if not terms.num_strata and dice.chance(theme.history) else None,
        dice.chance(0.3),
    )
    changes = tuple(_change(world, script, dice) for _ in range(theme.changes))
    for it in changes:  # a crash at a report shows that there was one: that is said in docs/privacy.md
        script = script if it.history is not None else script.without_crashes(it)
    return Drawn(script, changes)


def _events(world: _World, dice: Dice) -> list[Event]:
    theme, at = world.theme, 0.0
    events: list[Event] = []
    if dice.chance(theme.board):
        at = dice.pick(0.0, 0.1, 0.5) * world.unit
        events += [replace(_honest(world, dice, it), at=at) for it in world.members]
    length, plot = dice.pick(6, 10, 15, 20, 30), dice.pick(*theme.plots) if theme.plots else ()
    turns = {length * (k + 1) // (len(plot) + 1): maker for k, maker in enumerate(plot)}
    for number in range(length):
        at += _gap(world, dice)
        if number in turns:
            event: Event = turns[number](world, dice)
        elif dice.chance(theme.requests):
            event = _decide(world, dice)
        else:
            event = dice.pick(*(theme.makers if theme.makers and dice.chance(0.8) else ANYTHING))(world, dice)
        if isinstance(event, Cancel) and events:  # mostly before the reward
            at = min(at, events[-1].at + 0.05 * world.unit)
        events.append(replace(event, at=at))
    if not any(isinstance(it, Decide) for it in events):
        events.append(replace(_decide(world, dice), at=at))
    return events


def _gap(world: _World, dice: Dice) -> float:
    """Mostly a short one; any real number, and now and then exactly at a look at the clock or the end of a window."""
    kind = dice.randrange(9)
    if kind < 6:
        return world.unit * (0.5, 0.25, 1.0, 0.0, 1.5, 0.1)[kind]
    if kind == 6 or not world.window:
        return world.unit * 3.0 * dice.random()
    return world.window + 0.3 * world.unit * (kind - 7)


def _decide(world: _World, dice: Dice) -> Decide:
    theme = world.theme
    is_keyed = dice.chance(theme.keyed)
    if is_keyed and world.asked and dice.chance(0.6):
        return dice.pick(*world.asked)
    count = dice.pick(2, 2, 3, world.terms.first_batch, 5) if dice.chance(theme.many) else 1
    eligible, exclude = _arms(world, dice)
    key = dice.pick("k", "l", "m") if is_keyed else None
    subject = dice.pick("s", "t") if dice.chance(theme.known) else None
    size = dice.pick(0.0, 1.5, -1.5, 0.3)
    draws = tuple(_draws(world.terms, size, dice) for _ in range(count))
    entries = tuple(_entry(world, dice) for _ in range(count))
    it = Decide(0.0, Request(eligible, key, subject, count, exclude, _context(world, dice)), draws, entries)
    if is_keyed:
        world.asked.append(it)
    return it


def _arms(world: _World, dice: Dice) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """Which arms a request may get, and which not."""
    theme, num_arms = world.theme, world.terms.num_arms + world.added
    arm = dice.randrange(num_arms)
    if dice.chance(theme.left_out):
        return None, (arm,)
    if dice.chance(theme.free):
        return None, ()
    if world.added and dice.chance(0.4):
        arm = num_arms - 1
        return (arm,), ()
    return dice.pick((world.focus,), (world.focus,), (world.focus,), (arm,), tuple({world.focus, arm})), ()


def _context(world: _World, dice: Dice) -> dict[str, str | None] | None:
    factors = world.terms.context
    return None if factors is None else {it.name: dice.pick(*it.levels, it.levels[0]) for it in factors.factors}


def _draws(terms: Federation, size: float, dice: Dice) -> SiteDraws:
    """Small ones, so that estimates decide."""
    normals = tuple(size * (1.0 - 2.0 * dice.random()) for _ in terms.arms)
    return SiteDraws(normals, dice.random(), None if terms.shares is None else dice.random())


def _value(world: _World, dice: Dice, sure: float = 0.3) -> float:
    """Any value within the range, its ends among them."""
    if dice.chance(sure):
        return dice.pick(world.terms.high, world.terms.low)
    return min(world.terms.low + world.width * dice.random(), world.terms.high)


def _wild(world: _World, dice: Dice) -> float:
    """A value out of range."""
    terms, width = world.terms, world.width
    return dice.pick(terms.high + 3.0 * width, terms.low - 2.0 * width, terms.high + 1e-9 * width)


def _entry(world: _World, dice: Dice) -> Entry:
    """What is reported of one decision: mostly one reward, at once or later; none, several, out of range."""
    theme, delay = world.theme, 0.0
    value = _value(world, dice, theme.sure)
    if dice.chance(theme.late):
        whole = world.window or 2.0 * world.unit
        delay = whole * dice.pick(0.1, 0.5, 0.999, 1.0, 1.2, 0.8, 1.5 * dice.random())
    is_kept = dice.chance(theme.bulk)
    delay *= 0.2 if is_kept else 1.0  # it waits for the call besides
    kind = dice.randrange(16)
    if kind == 0:
        return ()
    if kind == 1:
        return Report(value, delay), Report(_value(world, dice), delay + 0.4 * world.unit)
    if kind == 2:
        return Report(_wild(world, dice), delay), Report(value, delay + 0.1 * world.unit)
    crash: Crash | None = dice.pick("before", "torn", "after") if kind in (3, 4) else None
    return (Report(value, delay, is_kept, crash),)


def _history(terms: Federation, dice: Dice) -> History:
    count = dice.randint(1, 5)
    count = count if terms.max_pulls is None else min(count, terms.max_pulls - 1)
    names = terms.arms[: dice.pick(1, 2)]
    total = min(count * (terms.low + (terms.high - terms.low) * dice.random()), count * terms.high)
    return History(dice.pick(100.0, 3.0), dict.fromkeys(names, PastRewards(count, max(total, count * terms.low))))


# ---------------------------------------------------------------- any change


def _change(world: _World, script: Script, dice: Dice) -> Change:
    """Another entry for a decision, mostly one that matters to the theme, or of the first two thirds; or a history."""
    if script.history is not None and dice.chance(0.4):
        return Change(history=_other_history(world, script.history, dice))
    places = _places_of(script)
    delicate: Sequence[_Place] = () if world.theme.delicate is None else world.theme.delicate(script)
    if delicate and dice.chance(0.7):
        event, position, it = dice.pick(*delicate)
    else:
        event, position, it = dice.pick(*places[: max(1, 2 * len(places) // 3)])
    return Change(event, position, _other_entry(world, it.entries[position], dice))


def _other_history(world: _World, history: History, dice: Dice) -> History:
    """One reward of one arm was another."""
    name = dice.pick(*sorted(history.arms))
    it, low, high = history.arms[name], world.terms.low, world.terms.high
    moved = it.sum + world.width * dice.pick(1.0, -1.0, 0.37, -0.005)
    total = min(max(moved, it.rewards * low), it.rewards * high)
    return History(history.days, {**history.arms, name: PastRewards(it.rewards, total)})


def _other_entry(world: _World, before: Entry, dice: Dice) -> Entry:
    """Without a window one with other values at the same times, or repeated, or out of range besides.

    The promise assumes there that the time of a report does not depend on the reward.
    """
    terms, sure = world.terms, world.theme.sure
    if world.window and dice.chance(0.45):
        return () if before and dice.chance(0.3) else without_crashes(_entry(world, dice))
    opposite = terms.low if before and before[0].value > (terms.low + terms.high) / 2.0 else terms.high
    value = opposite if dice.chance(sure) else _value(world, dice)
    found = [it._replace(value=value) if terms.low <= it.value <= terms.high else it for it in before]
    has_value = any(terms.low <= it.value <= terms.high for it in before)
    kind = dice.randrange(8)
    if kind == 0:  # a value out of range is refused
        first = before[0] if before else Report(0.0)
        found.insert(0, first._replace(value=_wild(world, dice), crash=None))
    if kind == 1 and has_value:  # a second one is ignored
        last = found[-1]
        found.append(Report(_value(world, dice), last.delay + 0.2 * world.unit, last.in_bulk))
    return without_crashes(tuple(found))
