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
from itertools import count, zip_longest
from typing import Literal

from fedbandit.agent.core.site import Site
from fedbandit.audit.executor import Differs, OpenSite, Run, Seen, known_noise
from fedbandit.audit.random_scripts import TermsFrom, drawn_script
from fedbandit.audit.scripts import Decide, Drawn, Entry, Event, Pair, Script, entry_in_words, once
from fedbandit.privacy.noise import GRID, NoiseSource

__all__ = ["Leak", "Searched", "SiteFailed", "pairs_of", "search", "shortest"]

SAME = 1e-9

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
        here, there = next(it for it in zip_longest(run.counts, base.counts) if it[0] != it[1])
        return replace(_leak(pair, Differs(here, there)), what="other counts")
    costs = [abs(run.shift(number)) * epsilon / GRID for number, epsilon in enumerate(run.draws)]
    cost, hiding = sum(costs), sum(it > 0.0 for it in costs)
    if cost > claimed * (1.0 + SAME):
        shown = f"the same, only if {hiding} draws of noise differ: that may be e^{cost:.3g} times less likely"
        return Leak(pair, run.now, f"noise that costs {cost:.3g}", (f"{shown}, where e^{claimed:.3g} is claimed",))
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


class _Shorter:
    """Makes a pair shorter as long as it leaks, until a moment."""

    def __init__(self, leak: Leak, is_leak: Callable[[Pair], Leak | None], until: float) -> None:
        self.leak, self._is_leak, self._until = leak, is_leak, until

    def run(self) -> Leak:
        events = self.leak.pair.script.events
        later = next((k for k, it in enumerate(events) if it.at > self.leak.at), len(events))
        self._without(later, len(events))
        size = -1
        while size != self.leak.pair.script.size:  # simpler events may make others superfluous
            size = self.leak.pair.script.size
            length = len(self.leak.pair.script.events)
            while length:
                first = 0
                while first < len(self.leak.pair.script.events):
                    first += 0 if self._without(first, first + length) else length
                length //= 2
            for number in range(len(self.leak.pair.script.events)):
                for simpler in _simpler(self.leak.pair, number):
                    self._try(simpler)
        return self.leak

    def _try(self, pair: Pair) -> bool:
        if pair == self.leak.pair or time.process_time() > self._until:
            return False
        found = self._is_leak(pair)
        self.leak = found or self.leak
        return found is not None

    def _without(self, first: int, last: int) -> bool:
        """Whether it leaks without some events; not if the change is in them."""
        script, change = self.leak.pair
        last = min(last, len(script.events))
        if change.history is None:
            if first <= change.event < last:
                return False
            if last <= change.event:
                change = replace(change, event=change.event - (last - first))
        return first < last and self._try(Pair(script.without(first, last), change))


def _simpler(pair: Pair, number: int) -> Iterator[Pair]:
    """The same with one request that asks for less, or rewards that come at once, one way after the other."""
    script, change = pair
    it = script.events[number]
    if not isinstance(it, Decide):
        return
    is_changed = change.history is None and change.event == number
    if it.request.count > 1:
        kept = change.position if is_changed else 0
        fewer = replace(it, request=replace(it.request, count=1), draws=it.draws[:1], entries=(it.entries[kept],))
        yield Pair(_with(script, number, fewer), replace(change, position=0) if is_changed else change)
    for part, nothing in (("key", None), ("subject", None), ("exclude", ())):
        if getattr(it.request, part) != nothing:
            yield Pair(_with(script, number, replace(it, request=replace(it.request, **{part: nothing}))), change)
    for position, entry in enumerate(it.entries):
        for simple in _simple_entries(entry):
            entries = (*it.entries[:position], simple, *it.entries[position + 1 :])
            yield Pair(_with(script, number, replace(it, entries=entries)), change)
    if is_changed:
        for simple in _simple_entries(change.entry):
            yield Pair(script, replace(change, entry=simple))


def _simple_entries(entry: Entry) -> Iterator[Entry]:
    if len(entry) > 1:
        yield entry[:1]
    if entry and entry != once(entry[0].value):
        yield once(entry[0].value)


def _with(script: Script, number: int, event: Event) -> Script:
    return replace(script, events=(*script.events[:number], event, *script.events[number + 1 :]))


def shortest(
    leak: Leak, claimed: float, opened: OpenSite = Site, process: Process = Run, seconds: float = 10.0
) -> Leak:
    """The same leak without what it does not need: first what comes after it, then more and more of the rest."""

    def is_leak(pair: Pair) -> Leak | None:
        try:
            return next((it for it in pairs_of(Drawn(pair.script, (pair.change,)), claimed, opened, process)), None)
        except SiteFailed:
            return None

    return _Shorter(leak, is_leak, time.process_time() + seconds).run()


# ---------------------------------------------------------------- many scripts


@dataclass
class Searched:
    """What random scripts have shown: a leak, and how many scripts and pairs were played, up to it.

    ``length``: events of the script as it was drawn
    """

    leak: Leak | None = None
    scripts: int = 0
    pairs: int = 0
    length: int = 0


def search(
    terms: TermsFrom,
    claimed: float,
    opened: OpenSite = Site,
    process: Process = Run,
    *,
    scripts: int = 10**9,
    seconds: float = 10**9,
    shrinking: float = 10.0,
    first: int = 0,
) -> Searched:
    """Play random scripts, from this number on, until one leaks, or so many are played, or the time is over.

    The script that leaks is made shorter for as long as ``shrinking`` says. Seconds are those of the processor.
    """
    found, end = Searched(), time.process_time() + seconds
    for number in range(first, first + scripts):
        if time.process_time() > end:
            break
        drawn = drawn_script(terms, number)
        found.scripts += 1
        for leak in pairs_of(drawn, claimed, opened, process):
            found.pairs += 1
            if leak is not None:
                found.length = len(drawn.script.events)
                found.leak = shortest(leak, claimed, opened, process, shrinking) if shrinking else leak
                return found
    return found
