"""A link as a register of which the last writer wins: each test is a sentence of ``rules/flow.py``."""

from math import fsum

from hypothesis import given
from hypothesis import strategies as st

from fedbandit.rules.flow import FIRST, adopt, answer, empty, gossiped, mirrored, moved
from fedbandit.rules.gossip import average

NUMBERS = st.floats(-100, 100)
ROWS = st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS)


class End:
    """One of two agents: what it owns, and its copy of the link."""

    def __init__(self, name, own):
        self.name, self.own, self.register = name, own, empty(2)

    @property
    def gossiped(self):
        return gossiped(self.own, [self.register[0]])

    def offer(self):
        return self.register, self.gossiped

    def answer(self, offer):
        self.register = answer(self.register, self.own, *offer, self.name)
        return self.register

    def adopt(self, answered):
        self.register = adopt(self.register, answered)


def off(a, b):
    """By how much the sum of what two gossip differs from the sum of what they own."""
    return max(abs(fsum((x, y, -u, -v))) for x, y, u, v in zip(a.gossiped, b.gossiped, a.own, b.own, strict=True))


@given(ROWS, ROWS, ROWS)
def test_without_faults_it_is_the_papers_average(own_a, own_b, later):
    """Algorithm 1, line 20, also after own numbers have changed."""
    a, b = End("a", own_a), End("b", own_b)
    for one, other in ((a, b), (b, a), (a, b)):
        expected = [average(x, y) for x, y in zip(a.gossiped, b.gossiped, strict=True)]
        one.adopt(other.answer(one.offer()))
        for c in range(4):
            assert abs(a.gossiped[c] - expected[c]) < 1e-12
            assert abs(b.gossiped[c] - expected[c]) < 1e-12
        a.own = later


@given(ROWS)
def test_a_mirror_of_a_mirror_is_the_flow(row):
    assert mirrored(mirrored(row)) == row
    assert "-0.0" not in repr(mirrored((0.0, 0.0)))


@given(ROWS, ROWS, ROWS)
def test_moved_lands_on_the_average(rest, flow, there):
    here = gossiped(rest, [flow])
    landed = gossiped(rest, [moved(flow, here, there)])
    assert all(abs(x - average(y, z)) < 1e-12 for x, y, z in zip(landed, here, there, strict=True))


def test_an_older_offer_changes_nothing_and_brings_the_newer_flow():
    """A lost answer: the sum is off until the next contact."""
    a, b = End("a", (1.0, 0.0, 1.0, 0.0)), End("b", (0.0, 0.0, 0.0, 0.0))
    b.answer(a.offer())  # the answer is lost
    assert off(a, b) == 0.5
    held = b.register
    a.adopt(b.answer(a.offer()))
    assert b.register == held
    assert off(a, b) == 0.0
    assert a.gossiped == b.gossiped == (0.5, 0.0, 0.5, 0.0)


def test_a_late_offer_changes_nothing():
    """Offers and answers of old, and what was agreed since."""
    a, b = End("a", (1.0, 0.0, 1.0, 0.0)), End("b", (0.0, 0.0, 0.0, 0.0))
    late_offer = a.offer()
    late_answer = b.answer(late_offer)
    a.adopt(late_answer)
    for own in ((0.5, 0.0, 1.0, 0.0), (0.25, 0.0, 1.0, 0.0)):
        a.own = own
        b.adopt(a.answer(b.offer()))
    held = a.register, b.register
    assert b.answer(late_offer) == held[1]
    a.adopt(late_answer)
    assert (a.register, b.register) == held
    assert held[0][1] == (3, "a")


def test_both_write_at_once():
    """Offers cross: both have written version 1, and the end whose name is larger wins."""
    a, b = End("a", (1.0, 2.0, 1.0, 0.0)), End("b", (0.0, 5.0, 0.0, 0.0))
    from_a, from_b = a.offer(), b.offer()
    answer_of_b, answer_of_a = b.answer(from_a), a.answer(from_b)
    a.adopt(answer_of_b)
    b.adopt(answer_of_a)
    assert a.register[1] == b.register[1] == (1, "b")
    assert off(a, b) < 1e-15


def test_of_two_equal_versions_the_larger_name_is_newer():
    row = (0.5, 0.0, 0.0, 0.0)
    a, b = End("a", row), End("b", row)
    a.register, b.register = (row, (1, "a")), (row, (1, "b"))
    assert b.answer(a.offer()) == (row, (1, "b")), "an older offer changes nothing"
    assert a.answer(b.offer())[1] == (2, "a")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.booleans()),
        st.tuples(st.just("deliver"), st.integers(0, 20)),
        st.tuples(st.just("drop"), st.integers(0, 20)),
        st.tuples(st.just("repeat"), st.integers(0, 20)),
        st.tuples(st.just("own"), st.tuples(st.booleans(), ROWS)),
        st.tuples(st.just("lose disk"), st.booleans()),
        st.tuples(st.just("old snapshot"), st.booleans()),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_happened_one_exchange_heals(steps):
    """Lost, repeated, late and crossing messages, a lost disk, an old snapshot: any agreed flow conserves the sum."""
    ends = [End("a", (1.0, 2.0, 1.0, 1.0)), End("b", (-3.0, 4.0, 1.0, 1.0))]
    flying, snapshot = [], [empty(2), empty(2)]
    for what, detail in steps:
        if what == "offer":
            flying.append(("offer", 1 - detail, ends[detail].offer()))
            snapshot[detail] = ends[detail].register
        elif what == "own":
            ends[detail[0]].own = detail[1]
        elif what == "lose disk":
            ends[detail].own, ends[detail].register = (0.0,) * 4, empty(2)
        elif what == "old snapshot":
            ends[detail].register = snapshot[detail]
        elif flying:
            kind, to, content = flying[detail % len(flying)]
            if what == "repeat":
                flying.append((kind, to, content))
                continue
            flying.pop(detail % len(flying))
            if what == "deliver" and kind == "offer":
                flying.append(("answer", 1 - to, ends[to].answer(content)))
            elif what == "deliver":
                ends[to].adopt(content)
    a, b = ends
    a.adopt(b.answer(a.offer()))
    assert a.register[0] == mirrored(b.register[0])
    assert off(a, b) < 1e-11


def test_a_new_link_is_older_than_any_other():
    assert FIRST == (0, "")
    assert FIRST < (1, "a") < (1, "b") < (2, "a")
