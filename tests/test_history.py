"""History: rewards of before the federation enter once, with the noise of any others, whatever becomes of the file."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit import FedBatch, FedUCB, GossipUCB, InvalidArgument
from fedbandit.agent.core.federation import DAY, Federation
from fedbandit.agent.core.history import History, PastRewards, check_history
from fedbandit.local.processes import LocalFederation
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import GRID
from fedbandit.testing.memory_network import MemoryNetwork
from processes import ask, command, lines, state, wait_until

LINKS = [("north", "east"), ("east", "south")]


def terms(policy=None, **more):
    return Federation("trial", ("A", "B"), 0.0, 1.0, policy or FedBatch(1.0, first_batch=20), **more)


PAST = History(100.0, {"A": PastRewards(120, 90.0), "B": PastRewards(110, 33.0)})


def started(histories=None, noise=None, **more):
    """A network in which all agents have heard each other."""
    found = MemoryNetwork(more.pop("terms", terms()), LINKS, spreads=True, noise=noise, **more)
    found.histories = {"north": PAST} if histories is None else histories
    return settled(found)


def settled(found):
    for _ in range(4):
        found.run(found.now + 30.0)
        for a, b in found.links:
            found.exchange(a, b)
        found.run()
    return found


class Draws:
    """Noise that is known, and counted."""

    def __init__(self):
        self.count = 0

    def __call__(self, epsilon, count):
        self.count += count
        return [0] * count


# ---------------------------------------------------------------- privacy


@given(
    st.integers(1, 90),
    st.integers(0, 90 * GRID),
    st.integers(-GRID, GRID),
    st.integers(1, 25),
    st.lists(st.integers(0, GRID), max_size=60),
)
def test_one_past_reward_moves_all_sums_together_by_no_more_than_its_range(rewards, total, change, first, later):
    """Of the batches of the history, and of the one that it shares with what comes later; each sum is as large as said.

    Fails if the mean is rounded for each reward by itself: sums would move by more, or the total would be another.
    """
    total = min(total, rewards * GRID)
    other = min(max(total + change, 0), rewards * GRID)

    def sums(of):
        mechanism, found, before = Mechanism(FedBatch(1.0, first_batch=first), 2, 2, 0.0, 1.0, Draws()), [], 0
        original = mechanism.page.observe

        def observe(me, terms, arm, steps, noise):
            nonlocal before
            assert type(steps) is int
            before += steps
            released = me.released[arm]
            original(me, terms, arm, steps, noise)
            if me.released[arm] > released:
                found.append(before)
                before = 0

        mechanism.page = mechanism.page._replace(observe=observe)
        mechanism.take_history(0, rewards, of)
        for reward in later:
            mechanism.take(0, reward / GRID)
        return [*found, before]

    one, two = sums(total), sums(other)
    assert len(one) == len(two)
    assert sum(one) == total + sum(later)
    assert sum(abs(a - b) for a, b in zip(one, two, strict=True)) == abs(total - other) <= GRID


@given(st.integers(1, 1000), st.floats(-3.0, 5.0), st.floats(0.0, 1.0), st.floats(-1.0, 1.0))
def test_the_sum_in_steps_moves_by_no_more_than_the_range(rewards, low, part, change):
    """Exact fractions: a sum of floats could be rounded twice."""
    given = Federation("t", ("A", "B"), low, low + 1.5, FedBatch(1.0))
    one = rewards * (low + 1.5 * part)
    two = float(Fraction(one) + Fraction(change) * Fraction(3, 2))
    if abs(Fraction(one) - Fraction(two)) > Fraction(given.high) - Fraction(given.low):
        return  # the float beside it is further away
    steps = [History(1.0, {"A": PastRewards(rewards, it)}).in_steps("A", given) for it in (one, two)]
    assert abs(steps[0] - steps[1]) <= GRID
    assert all(0 <= it <= rewards * GRID for it in steps)


# ---------------------------------------------------------------- what it is good for


def test_a_trial_does_not_begin_from_nothing():
    found = started(dict.fromkeys(("north", "east", "south"), PAST))
    for name in found.names:
        site = found.site(name)
        assert site.history == (120, 110)
        assert min(site.releases) >= 3
        assert site.decided == 0
        assert site.pending == 0
        assert site.theta[0] > 0.6 > 0.4 > site.theta[1]
        assert site.answer.leader == 0
    given = [found.decide("north").arm for _ in range(40)]
    assert given.count(0) > 30


def test_without_noise_the_mean_is_that_of_the_history():
    found = started(noise=Draws())
    site = found.site("north")
    assert site.own_means == (pytest.approx(0.75, abs=1e-4), pytest.approx(0.3, abs=1e-4))
    assert site.per_day == pytest.approx((120 + 110 - 2) / 100.0, rel=0.01), "patients came over 100 days"
    assert [it.history for it in found.site("south").board.held("north").bulletin.arms] == [120, 110]


def test_the_rate_goes_on_from_that_of_the_history():
    found = started(noise=Draws())
    for _ in range(60):
        found.now += DAY / 3.0
        made = found.decide("north")
        found.report("north", made.id, 0.5)
    assert found.site("north").per_day == pytest.approx((230 + 60) / 120.0, rel=0.15)


def test_what_is_left_over_waits_in_the_open_batch():
    found = started({"north": History(10.0, {"A": PastRewards(15, 15.0)})}, noise=Draws())
    assert found.site("north").releases == (0, 0)
    while found.site("north").releases[0] == 0:
        made = found.decide("north")
        found.report("north", made.id, 0.0)
    assert found.site("north").own_means[0] == pytest.approx(15 / 20)


@pytest.mark.parametrize("policy", [FedUCB(1.0, horizon=500), GossipUCB()])
def test_it_enters_with_other_policies_too(policy):
    found = started(terms=terms(policy, max_agents=3), noise=Draws())
    assert found.site("north").rewards == (120, 110)
    assert found.site("north").own_means[0] == pytest.approx(0.75, abs=1e-3)


# ---------------------------------------------------------------- once for ever


def entered(found, name="north"):
    return [it.history for it in found.site(name).board.held(name).bulletin.arms]


def test_restarts_draw_nothing_again():
    draws = Draws()
    found = started(noise=draws)
    count, rows = draws.count, found.site("south").board.held("north").bulletin.arms
    assert count == sum(found.site("north").releases) > 5
    for _ in range(3):
        found.restart("north")
        settled(found)
    assert draws.count == count
    assert found.site("south").board.held("north").bulletin.arms == rows


@pytest.mark.parametrize("crash", ["before", "torn", "after"])
def test_a_crash_while_it_is_written_shows_nobody_two_draws(crash):
    found = MemoryNetwork(terms(), LINKS, spreads=True)
    settled(found)
    found.histories = {"north": PAST}
    found.crash("north", crash)
    with pytest.raises(RuntimeError, match="died"):
        found.decide("north")
    found.restart("north")
    settled(found)
    assert entered(found) == [120, 110]
    assert found.site("south").drawn_twice == {}


def test_a_lost_file_never_enters_it_again():
    """Its bulletin comes back from a neighbour, before anything is entered."""
    draws = Draws()
    found = started(noise=draws)
    count, releases = draws.count, found.site("north").releases
    found.lose_disk("north")
    found.restart("north")
    assert found.site("north").history == (0, 0), "it does not know yet"
    settled(found)
    assert found.site("north").history == (120, 110)
    assert found.site("north").releases == releases
    assert draws.count == count
    assert entered(found) == [120, 110], "and says so again"


def test_a_lost_file_whose_policy_begins_anew_never_enters_it_again():
    """Trees do: what was released is gone, and stays gone."""
    draws = Draws()
    found = started(terms=terms(FedUCB(1.0, horizon=500), max_agents=3), noise=draws)
    count = draws.count
    found.lose_disk("north")
    found.restart("north")
    settled(found)
    assert (found.site("north").rewards, found.site("north").history, draws.count) == ((0, 0), (120, 110), count)


def test_an_old_file_never_enters_it_again():
    """A copy of before it was entered is put back: neighbours have the bulletin, and restore keeps to that."""
    draws = Draws()
    found = MemoryNetwork(terms(), LINKS, spreads=True, noise=draws)
    settled(found)
    made = found.decide("north")
    found.report("north", made.id, 0.5)
    old = found.snapshot("north")
    found.histories = {"north": PAST}
    settled(found)
    found.decide("north")
    settled(found)
    count = draws.count
    assert entered(found) == [120, 110]
    found.put_back("north", old)
    found.restart("north")
    settled(found)
    assert found.site("north").doubt is not None
    found.restore("north")
    settled(found)
    found.decide("north")
    settled(found)
    assert found.site("north").history == (120, 110)
    assert draws.count == count


def test_a_site_waits_for_the_answer_of_every_neighbour():
    """It may have released its history before it lost its file: and perhaps only one neighbour knows."""
    draws = Draws()
    found = MemoryNetwork(terms(), LINKS, spreads=True, noise=draws)
    found.partition("south")
    found.histories = {"east": PAST}
    settled(found)
    for _ in range(10):
        made = found.decide("east")
        found.report("east", made.id, 0.5)
    assert (found.site("east").history, draws.count) == ((0, 0), 0)
    found.heal()
    settled(found)
    assert found.site("east").history == (120, 110)


def test_a_site_that_has_lost_its_file_waits_for_the_neighbour_that_knows():
    draws = Draws()
    found = started({"east": PAST}, noise=draws)
    count = draws.count
    found.lose_disk("east")
    found.lose_disk("north")
    found.save_board("south")
    found.crash("south")
    for name in ("east", "north"):
        found.restart(name)
    settled(found)
    assert (found.site("east").history, draws.count) == ((0, 0), count), "north knows nothing, and south is away"
    found.restart("south")
    settled(found)
    assert (found.site("east").history, draws.count) == ((120, 110), count)


def test_what_the_configuration_says_later_is_ignored():
    draws = Draws()
    found = started(noise=draws)
    count = draws.count
    found.histories = {"north": History(100.0, {"A": PastRewards(500, 400.0)})}
    settled(found)
    found.decide("north")
    assert (found.site("north").history, draws.count) == ((120, 110), count)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("days", "arms", "said"),
    [
        (0.0, {"A": (1, 1.0)}, "days must be above 0"),
        (1.0, {}, "arms must be one arm or more"),
        (1.0, {"A": (0, 0.0)}, "arms.A.rewards must be a whole number from 1 to 1000000, not 0"),
        (1.0, {"A": (10, math.nan)}, "arms.A.sum must be a finite number"),
        (1.0, {"C": (10, 5.0)}, "arms must be one of the arms: A, B, not 'C'"),
        (1.0, {"A": (10, 10.5)}, "arms.A.sum must be from 0 to 10, that of 10 rewards, not 10.5"),
        (1.0, {"A": (10, -0.5)}, "arms.A.sum must be from 0 to 10"),
    ],
)
def test_a_wrong_history_is_refused_in_words(days, arms, said):
    with pytest.raises(InvalidArgument) as caught:
        check_history(History(days, {name: PastRewards(*it) for name, it in arms.items()}), terms())
    assert said in str(caught.value)


def test_a_tree_takes_no_more_than_its_horizon():
    with pytest.raises(InvalidArgument, match=r"A\.rewards must be below 101"):
        check_history(PAST, terms(FedUCB(1.0, horizon=100)))


# ---------------------------------------------------------------- real agents

SECTION = (
    "\n[history]\ndays = 100\n\n[history.arms]\nA = { rewards = 120, sum = 90 }\nB = { rewards = 110, sum = 33 }\n"
)


def test_a_real_agent_enters_it_once(tmp_path):
    """With its file, and then without: the neighbour knows."""
    federation = LocalFederation(tmp_path, terms(max_agents=2), [("north", "east")])
    config = federation.config("north")
    config.write_text(config.read_text() + SECTION)
    _, said = command("agent", "--check", "-c", config)
    assert "120 rewards of A, 110 rewards of B, in 100 days, would be entered" in " ".join(said.split())

    def arms(name="north"):
        return state(federation, name)["arms"]

    with federation:
        wait_until(lambda: [it["history"] for it in arms()] == [120, 110], within=30.0)
        released = [it["releases"] for it in arms()]
        assert min(released) >= 3
        assert [it["pulls"] for it in arms()] == [0, 0], "nobody was given anything yet"
        wait_until(lambda: arms("east")[0]["estimate"] is not None)
        means = [it["own_mean"] for it in arms()]
        assert ask(f"{federation.url('north')}/v1/decisions", "POST")[0] == 201
        federation.kill("north")
        federation.start("north")
        federation.wait_ready("north")
        assert [it["own_mean"] for it in arms()] == means

        federation.kill("north")
        for path in federation.state_file("north").parent.iterdir():
            path.unlink()
        federation.start("north")
        federation.wait_ready("north")
        wait_until(lambda: [it["releases"] for it in arms()] == released, within=30.0)
        assert [it["own_mean"] for it in arms()] == means, "another draw would be another mean"
        assert [it["history"] for it in arms()] == [120, 110]
        assert len(lines(federation, "north", "120 rewards of A are entered")) == 1
    _, said = command("agent", "--check", "-c", config)
    assert "entered already: it is never entered again" in " ".join(said.split())
