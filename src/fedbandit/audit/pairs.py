"""Executes the privacy proof on pairs of random scripts: what is released is made equal, and all else must be equal.

A site plays a script with known noise, then a script that differs in one entry. Each draw of the second run is shifted
by what the changed entry moves in the sum that it hides, so that the same numbers are released. Then everything that
others see must be the same, bit for bit. Laplace noise that moves by delta is at most e^(|delta| / scale) times less
likely, so the change costs the sum of |delta| / scale over the draws. That sum must not exceed the claim.

Nothing rests on chance but which scripts are played: a site that keeps the proof is never accused.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, given, seed, settings

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import Site
from fedbandit.audit.executor import Differs, OpenSite, Run, Seen, known_noise
from fedbandit.audit.scripts import Decide, Drawn, Pair, entry_in_words, scripts_on
from fedbandit.privacy.noise import GRID, NoiseSource

__all__ = ["Leak", "Searched", "SiteFailed", "pairs_of", "search"]

SAME = 1e-9
AT_ONCE = 100  # scripts that Hypothesis draws in one go

Process = Callable[..., Run]


class SiteFailed(RuntimeError):
    """The site raised something that no site should: the audit cannot tell."""


@dataclass(frozen=True)
class Leak:
    """A pair that the noise does not hide within the claim.

    * ``at``: when something differs; ``what``: a word for it; ``shown``: what an observer sees in both runs
    """

    pair: Pair
    at: float
    what: str
    shown: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The leak in a sentence."""
        return f"{_change_in_words(self.pair)}: {self.what} after {self.at:.6g} s"

    def in_words(self) -> Iterator[str]:
        """The whole script, what is changed in it, and what an observer sees."""
        yield from self.pair.script.in_words()
        yield f"then the same with {_change_in_words(self.pair)}"
        yield f"an observer sees {self.what} after {self.at:.6g} s"
        yield from self.shown


def _change_in_words(pair: Pair) -> str:
    script, change = pair
    if change.history is not None:
        return f"the history {dict(change.history.arms)}"
    it = script.events[change.event]
    assert isinstance(it, Decide)  # noqa: S101  # a change names a request
    before, after = (entry_in_words(entry) for entry in (it.entries[change.position], change.entry))
    which = f"decision {change.position + 1} of the request" if it.request.count > 1 else "the request"
    return f"{after} instead of {before} for {which} at {it.at:.6g} s"


# ---------------------------------------------------------------- one script


def pairs_of(drawn: Drawn, claimed: float, opened: OpenSite = Site, process: Process = Run) -> Iterator[Leak | None]:
    """What each pair shows that the promise covers; None: nothing."""
    base = process(drawn.script, opened, _noise())
    try:
        base.play()
    except Exception as error:
        raise SiteFailed(f"{type(error).__name__}: {error}") from error
    for change in drawn.changes:
        found = _compared(Pair(drawn.script, change), base, claimed, opened, process)
        if found != "not covered":
            yield found


def _compared(
    pair: Pair, base: Run, claimed: float, opened: OpenSite, process: Process
) -> Leak | Literal["not covered"] | None:
    changed, other = _number_of(pair, base), pair.script.changed(pair.change)
    if changed is None or other == pair.script:
        return "not covered"
    run = process(other, opened, _noise(), expected=base, changed=changed)
    leak: Leak | None = None
    try:
        run.play()
    except Differs as found:
        leak = _leak(pair, found)
    except Exception as error:
        leak = Leak(pair, run.now, "a failure", (f"{type(error).__name__}: {error}",))
    if not _is_covered(pair, base, run, changed):
        return "not covered"
    if leak is not None:
        return leak
    if base.delivered.get(changed) == run.delivered.get(changed) and base.counts != run.counts:
        return Leak(pair, run.now, "other counts")
    cost = sum(abs(run.shift(number)) * epsilon / GRID for number, epsilon in enumerate(run.draws))
    if cost > claimed * (1.0 + SAME):
        return Leak(pair, run.now, f"noise that costs {cost:.3g}")
    return None


def _noise() -> NoiseSource:
    numbers = count()
    return lambda _, many: [known_noise(next(numbers)) for _ in range(many)]


def _number_of(pair: Pair, base: Run) -> int | None:
    """The number of the changed decision; 0: it is the history that changes; None: no such decision was made."""
    change = pair.change
    if change.history is not None:
        return 0
    place = change.event, change.position
    return base.requested.index(place) + 1 if place in base.requested else None


def _is_covered(pair: Pair, base: Run, run: Run, changed: int) -> bool:
    """Whether the promise covers a change: whether a decision can be cancelled must not depend on its reward.

    Without a window the time of a report must not, either.
    """
    cancelled = [it.saw_cancel[changed] for it in (base, run) if changed in it.saw_cancel]
    if len(set(cancelled)) > 1:
        return False
    return bool(pair.script.terms.reward_window) or base.delivered.get(changed) == run.delivered.get(changed)


def _leak(pair: Pair, found: Differs) -> Leak:
    first = min((it for it in (found.here, found.there) if it is not None), key=lambda it: it.at)
    shown = f"before: {_seen(found.there, found.here)}", f"after: {_seen(found.here, found.there)}"
    return Leak(pair, first.at, f"another {first.what}", shown)


def _seen(it: Seen | None, other: Seen | None) -> str:
    """What is seen in one run, from where it differs from the other."""
    if it is None:
        return "nothing"
    return f"{it.what} at {it.at:.6g} s: {_cut(str(it.content), '' if other is None else str(other.content))}"


def _cut(text: str, rest: str) -> str:
    place = next((k for k, (a, b) in enumerate(zip(text, rest, strict=False)) if a != b), 0)
    return ("..." if place > 60 else "") + text[max(0, place - 60) : place + 60]


# ---------------------------------------------------------------- the shortest script


def shortest(leak: Leak, is_leak: Callable[[Pair], Leak | None]) -> Leak:
    """The same leak without events that it does not need: first what comes after it, then more and more of the rest."""
    events = leak.pair.script.events
    later = next((k for k, it in enumerate(events) if it.at > leak.at), len(events))
    leak = _without(leak, later, len(events), is_leak) or leak
    length = len(leak.pair.script.events)
    while length:
        first = 0
        while first < len(leak.pair.script.events):
            smaller = _without(leak, first, first + length, is_leak)
            leak, first = (smaller, first) if smaller is not None else (leak, first + length)
        length //= 2
    return leak


def _without(leak: Leak, first: int, last: int, is_leak: Callable[[Pair], Leak | None]) -> Leak | None:
    """The leak that is left without some events; None: there is none, or the change is in them."""
    script, change = leak.pair
    if change.history is None:
        if first <= change.event < last:
            return None
        if last <= change.event:
            change = replace(change, event=change.event - (last - first))
    return None if first >= last else is_leak(Pair(script.without(first, last), change))


# ---------------------------------------------------------------- many scripts


@dataclass
class Searched:
    """What random scripts have shown: the shortest leak, and how many scripts and pairs were played."""

    leak: Leak | None = None
    scripts: int = 0
    pairs: int = 0
    until_found: int = 0


def search(
    terms: Callable[[bytes], Federation],
    claimed: float,
    opened: OpenSite = Site,
    process: Process = Run,
    *,
    scripts: int = 10**9,
    seconds: float = 10**9,
    shrinking: float = 10.0,
    first_seed: int = 0,
    on_progress: Callable[[Searched], None] | None = None,
) -> Searched:
    """Play random scripts until one leaks, or so many are played, or so many seconds are over.

    Then Hypothesis shrinks the script that leaks, for as long as ``shrinking`` says, and no event stays that it does
    not need. The same seed plays the same scripts.
    """
    found, ends, failures = Searched(), [time.monotonic() + seconds], list[SiteFailed]()

    def play(drawn: Drawn) -> None:
        if time.monotonic() > ends[0] or (found.leak is None and found.scripts >= scripts):
            return
        found.scripts += found.leak is None
        for leak in pairs_in(drawn):
            found.pairs += found.leak is None
            if leak is None:
                continue
            if found.leak is None:
                found.until_found, ends[0] = found.scripts, time.monotonic() + shrinking
            if found.leak is None or leak.pair.script.size <= found.leak.pair.script.size:
                found.leak = leak
            raise _Leaks
        if on_progress is not None:
            on_progress(found)

    def pairs_in(drawn: Drawn) -> Iterator[Leak | None]:
        try:
            yield from pairs_of(drawn, claimed, opened, process)
        except SiteFailed as failure:
            failures.append(failure)
            raise

    def is_leak(pair: Pair) -> Leak | None:
        try:
            return next((it for it in pairs_of(Drawn(pair.script, (pair.change,)), claimed, opened, process)), None)
        except SiteFailed:
            return None

    for number in count(first_seed):
        run: Any = seed(number)(_SETTINGS(given(scripts_on(terms))(play)))
        try:
            run()
        except Exception as error:  # Hypothesis says that it has found a leak, or that the time for shrinking was over
            if found.leak is None:  # Hypothesis may say something else of a site that fails now and then
                raise failures[0] if failures else error from error
        if found.leak is not None:
            found.leak = shortest(found.leak, is_leak)
        if found.leak is not None or found.scripts >= scripts or time.monotonic() > ends[0]:
            return found
    raise AssertionError


class _Leaks(Exception):
    """For Hypothesis, which shrinks what raises it."""


_SETTINGS = settings(
    max_examples=AT_ONCE,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType]  # its metaclass
    report_multiple_bugs=False,
)
