"""A site that lies moves an estimate by at most its own share of it, and the noise, whatever it signs.

First arbitrary bulletins on boards, then a liar among real sites. A board counts honest sites exactly as they publish.
The tests of attacks fail where sites average over their links: there one site within all bounds moved the mean of five
by 1.9 ranges, and settled the wrong arm.
"""

from dataclasses import replace
from math import exp, inf, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.agent.core.answer import Belief, answer_of
from fedbandit.agent.core.board import Board
from fedbandit.agent.core.bulletin import MAX_COUNT, ArmEntry, Bulletin, Signed
from fedbandit.agent.core.counting import Counting
from fedbandit.agent.core.decisions import draws_for
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.notices import Note, notes_of_shares
from fedbandit.checks import InvalidArgument
from fedbandit.privacy.noise import GRID
from fedbandit.rules.influence import QUANTILE, distances, noise_quantile, water_level, wide_quantile
from fedbandit.rules.releases import MEAN, VARIANCE, WEIGHT, mean_of_heard
from fedbandit.testing.memory_network import MemoryNetwork, simulated_signature

ARMS = "good", "middle", "bad"
TRUTH = 0.8, 0.5, 0.2
SITES = Federation("test", ARMS, 0.0, 1.0, FedBatch(1.0), counts="sites")
PATIENTS = replace(SITES, counts="patients")
PROVED = replace(SITES, policy=FedBatch(1.0, index="ucb", radius="proved"))
KINDS = {"sites": SITES, "patients": PATIENTS}
NOW = 2e9
DAILY = 20.0 / (24 * 3600)


def laplace(random, scale):
    return scale * (random.expovariate(1.0) - random.expovariate(1.0))


def honest(terms, site, random, releases=6, truth=TRUTH, weight=DAILY):
    """The bulletin of a site that follows the protocol."""

    def noise(epsilon, count):
        return [round(laplace(random, GRID / epsilon)) for _ in range(count)]

    own = terms.mechanism(noise)
    own.count(5)
    if terms.counted == "patients":
        own.me.share = weight
    for arm, mean in enumerate(truth):
        while own.me.releases[arm] < releases:
            own.take(arm, float(random.random() < mean))
    entries = [
        ArmEntry(name, own.page.published(own.me, own.terms, k), releases, own.me.released[k], own.me.n[k])
        for k, name in enumerate(terms.arms)
    ]
    return bulletin(terms, site, entries)


def bulletin(terms, site, entries, number=1):
    said = Bulletin(
        terms.digest(),
        site,
        1,
        number,
        0,
        decisions=min(sum(it.decisions for it in entries), MAX_COUNT),
        arms=(*entries,),
    )
    return Signed(said.encode(), b"", b"")


def lie(terms, site, means, releases=6, rewards=None, variance=0.0, weight=1e15, decisions=MAX_COUNT):
    known = min(Counting(terms).schedule(releases).rewards, MAX_COUNT)
    rewards = known if rewards is None else rewards
    entries = [
        ArmEntry(name, (float(mean), float(variance), float(weight)), releases, rewards, decisions)
        for name, mean in zip(terms.arms, means, strict=True)
    ]
    return bulletin(terms, site, entries)


def board(terms, *bulletins):
    it = Board("honest 0", terms)
    for signed in bulletins:
        it.merge(signed, NOW)
    return it


def seen(it, terms, arm):
    """What a page sees, in ranges: the mean, its variance, and the share of the federation in it."""
    fixed = terms.mechanism()
    fixed.count(it.num_agents)
    rows, versions = it.rows(arm)
    mean, sampling, missing, _ = terms.page.combine(fixed.terms, rows, versions)
    return mean / GRID, (sampling + missing) / GRID**2


def answer(it, terms):
    """As a site answers from its board."""
    found = [seen(it, terms, arm) for arm in terms.arms]
    known = [it.known_share(arm) for arm in terms.arms]
    means = [mean if share > 0.0 else None for (mean, _), share in zip(found, known, strict=True)]
    errors = [None if mean is None else sqrt(variance) for mean, (_, variance) in zip(means, found, strict=True)]
    return answer_of(
        Belief(terms.arms, ["active"] * len(terms.arms), means, errors, known, "over all", it.rests_on(terms.arms))
    )


def seeded(seed):
    return Random(seed)  # noqa: S311  # a simulation


# ---------------------------------------------------------------- honest sites count as they are


@pytest.mark.parametrize("terms", [SITES, PATIENTS, PROVED], ids=["sites", "patients", "proved"])
def test_honest_rows_count_bit_for_bit(terms):
    """Also at both ends of the range, where noise leaves it. A false alarm has a probability below 1e-3 here.

    Of 600 means each is clamped with a probability below 1e-6.
    """
    random, counting = seeded(1), Counting(terms)
    for j in range(40):
        signed = honest(terms, f"site {j}", random, releases=1 + j % 5, truth=(0.0, 1.0, 0.5))
        held = board(terms, signed).held(f"site {j}")
        for entry in held.bulletin.arms:
            assert held.rows[entry.name] == entry.row == counting.row(entry)
        it = board(terms, signed)
        assert it.oddities(NOW) == {}


def test_the_quantile_of_noise_is_exceeded_less_than_once_in_a_million():
    """Of one draw exactly, of two by their exact tail: (a^2 e^-t/a - b^2 e^-t/b) / (a^2 - b^2), both ends together."""
    assert noise_quantile([]) == noise_quantile([0.0]) == 0.0
    assert noise_quantile([0.3]) == 0.3 * QUANTILE
    assert exp(-QUANTILE) < 1e-6
    for a, b in ((1.0, 0.9), (1.0, 0.5), (2.0, 0.1)):
        t = noise_quantile([a, b])
        assert (a * a * exp(-t / a) - b * b * exp(-t / b)) / (a * a - b * b) < 1e-6
        assert t < 1.5 * QUANTILE * max(a, b) + QUANTILE * min(a, b)
    many = [1.0 / k for k in range(1, 50)]
    assert noise_quantile(many) <= wide_quantile(sum(c * c for c in many), 1.0) < 2.0 * noise_quantile(many)


def test_clamping_moves_no_expectation_that_anybody_could_measure():
    """One release at the end of the range, the worst case: E[(L - q b)+] = b e^-q / 2, with b in ranges."""
    counting = Counting(SITES)
    first = counting.schedule(1)
    scale = 1.0 / 12.0  # of the first batch, in ranges
    assert first.noise / GRID == pytest.approx(QUANTILE * scale)
    bias = scale * exp(-QUANTILE) / 2.0
    assert bias < 4e-8
    random, moved, draws = seeded(2), 0.0, 200_000
    for _ in range(draws):  # from beyond 5 scales on, each with its probability e^-5
        noise = scale * (5.0 + random.expovariate(1.0))
        moved += max(noise - QUANTILE * scale, 0.0)
    assert moved / draws * exp(-5.0) / 2.0 == pytest.approx(bias, rel=0.5)  # seeded; about 25 exceed


# ---------------------------------------------------------------- one liar among five


LIES = {
    "one row for ever": {},
    "one release": {"releases": 1},
    "a thousand million releases": {"releases": 10**9, "rewards": MAX_COUNT},
    "huge variance": {"variance": 1e300},
    "negative variance": {"variance": -1e300},
    "no weight": {"weight": 0.0},
    "negative weight": {"weight": -1e300},
    "all the weight": {"weight": 1e300},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", LIES)
def test_one_of_five_moves_a_mean_by_its_share(kind, case):
    """It says 0, 0 and 1 where .8, .5 and .2 is true: the right arm stays the best, by what it leaves of the lead.

    Where patients count it claims all of them: then its share is one half, which it has of the mean as well.
    """
    terms, random = KINDS[kind], seeded(3)
    others = [honest(terms, f"honest {j}", random) for j in range(4)]
    without, it = board(terms, *others), board(terms, *others, lie(terms, "liar", (0, 0, GRID), **LIES[case]))
    is_heavy = kind == "patients" and LIES[case].get("weight", 1.0) > 0.0
    share = 0.5 if is_heavy else 0.2
    for k, arm in enumerate(ARMS):
        (before, _), (after, _) = seen(without, terms, arm), seen(it, terms, arm)
        assert abs(after - before) <= share * max(abs(before - (0, 0, 1)[k]), 1e-9) * (1 + 1e-9)
    if not is_heavy:
        assert abs(seen(it, terms, "good")[0] - 0.8) < 0.2
        found = answer(it, terms)
        assert found.leader == 0
    assert not (answer(it, terms).settled and answer(it, terms).leader == 2)


@pytest.mark.parametrize("releases", [1, 6, 10**9])
def test_beyond_the_range_it_gets_no_further_than_noise(releases):
    """Noise may: that of a first release by 14 / 12 of the range with epsilon 1, of a large batch by next to none."""
    others = [honest(SITES, f"honest {j}", seeded(4)) for j in range(4)]
    noise = Counting(SITES).schedule(releases).noise / GRID
    assert noise <= {1: 14.0 / 12.0, 6: 0.51, 10**9: 1e-6}[releases] + 1e-9
    for said, most in ((1e300, 1.0 + noise), (-1e300, -noise)):
        it = board(SITES, *others, lie(SITES, "liar", (said,) * 3, releases))
        row = it.rows("bad")[0][it.counted().index("liar")]
        assert row[MEAN] / GRID == pytest.approx(most)
        assert abs(seen(it, SITES, "bad")[0] - 0.2) <= 0.2 * (1.0 + noise)


def test_the_liar_is_named():
    """By everybody, and only it."""
    random = seeded(5)
    others = [honest(SITES, f"honest {j}", random) for j in range(4)]
    for case, words in {
        "one row for ever": "standard deviations from what the others say",
        "a thousand million releases": "its weight counts as 1 instead of 1e+15",
        "huge variance": "its variance counts as",
    }.items():
        odd = board(SITES, *others, lie(SITES, "liar", (0, 0, GRID), **LIES[case])).oddities(NOW)
        assert list(odd) == ["liar"], case
        assert words in " ".join(odd["liar"]), case
    many = board(SITES, *others, lie(SITES, "liar", (0, 0, GRID), rewards=5)).oddities(NOW)["liar"]
    assert any("6 releases hold" in said and "not 5" in said for said in many)


def test_a_share_that_is_cut_is_told_and_is_not_odd():
    """It is agreed, and needs nobody: an alert on what is odd must not fire."""
    others = [honest(PATIENTS, f"honest {j}", seeded(j)) for j in range(4)]
    it = board(PATIENTS, *others, honest(PATIENTS, "large", seeded(9), weight=100.0 * DAILY))
    assert it.oddities(NOW) == {}
    assert list(notes_of_shares(PATIENTS, it)) == [
        "large has 96% of all patients, as it says, and counts as 50% (largest_share)."
    ]
    fair = board(PATIENTS, *others, honest(PATIENTS, "large", seeded(9), weight=3.9 * DAILY))
    assert list(notes_of_shares(PATIENTS, fair)) == []


def test_two_sites_are_told_once_that_they_count_alike():
    """Whose share is above one half changes with every patient: a note that named it would come and go."""
    said = [
        list(notes_of_shares(PATIENTS, board(PATIENTS, one, honest(PATIENTS, "own", seeded(2), weight=DAILY))))
        for one in (honest(PATIENTS, "other", seeded(1), weight=weight) for weight in (0.9 * DAILY, 1.1 * DAILY))
    ]
    expected = "2 sites count alike, however many patients each has: none counts as more than 50% of all patients"
    assert said[0] == said[1] == [f"{expected} (largest_share)."]
    assert all(isinstance(it, Note) for it in said[0])


def test_a_site_that_decides_faster_than_it_counts_is_named():
    terms = replace(PATIENTS, max_decisions_per_day=100.0)
    it, entries = Board("own", terms), [ArmEntry("good", (0.0, 0.0, 0.0), 0, 0, 1000)]
    it.merge(bulletin(terms, "fast", entries), NOW)
    assert it.oddities(NOW) == {}
    entries = [ArmEntry("good", (0.0, 0.0, 0.0), 0, 0, 1300)]
    it.merge(bulletin(terms, "fast", entries, 2), NOW)
    said = it.oddities(NOW + 24 * 3600.0)["fast"]
    assert said == ("it has made 300 decisions in 1.0 days, and counts as 100 a day",)
    assert it.oddities(NOW + 3 * 24 * 3600.0) == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", [1, 4, 9])
def test_nothing_is_settled_on_one_site_alone(kind, others):
    """The others have not released anything yet, whatever the liar claims to know."""
    terms = KINDS[kind]
    quiet = [
        bulletin(terms, f"honest {j}", [ArmEntry(arm, (0.0, 0.0, float(kind == "sites")), 0, 0, 3) for arm in ARMS])
        for j in range(others)
    ]
    for case in LIES.values():
        for means in ((0, 0, GRID), (-1e300, -1e300, 1e300)):
            it = board(terms, *quiet, lie(terms, "liar", means, **case))
            found = answer(it, terms)
            assert not found.settled
            assert it.rests_on(ARMS) == "liar" or it.known_share("bad") == 0.0
            assert it.known_share("bad") <= 1.0 / (others + 1) + 1e-9


# ---------------------------------------------------------------- arbitrary bulletins of arbitrary coalitions


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1.0, float(GRID), 1e308, -1e308])
counts = st.integers(0, 40) | st.integers(0, MAX_COUNT)
entries_of_arm = st.builds(ArmEntry, st.just("good"), st.tuples(numbers, numbers, numbers), counts, counts, counts)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(KINDS)), st.integers(3, 50), st.integers(0, 2**31), st.data())
def test_a_coalition_moves_an_estimate_by_its_own_share_at_most(kind, num_sites, seed, data):
    """The estimate lies between those of the honest and of the coalition, by the share that the coalition counts as.

    Where sites count that is c / N. Where patients count each liar has at most half.
    """
    terms, random = KINDS[kind], seeded(seed)
    liars = data.draw(st.integers(1, num_sites - 1))
    counting = Counting(terms)
    said, claimed = [], []
    for j in range(num_sites - liars):
        known = counting.schedule(1 + random.randrange(9))
        mean, variance = random.uniform(0, GRID), random.uniform(1e5, 1e8)
        weight = 1.0 if kind == "sites" else DAILY * exp(random.gauss(0, 2))
        entry = ArmEntry("good", (mean, variance, weight), random.randrange(1, 9), known.rewards, 10**5)
        said.append(bulletin(terms, f"honest {j}", [entry]))
    for j in range(liars):
        claimed.append(data.draw(entries_of_arm))
        said.append(bulletin(terms, f"liar {j}", [claimed[-1]]))
    it = board(terms, *said)
    rows, versions = it.rows("good")
    assert versions == [1] * num_sites
    names = it.counted()
    known = [row for row in rows if row[VARIANCE] > 0.0 and row[WEIGHT] > 0.0]
    total = sum(row[WEIGHT] for row in known)
    if kind == "sites":
        assert {row[WEIGHT] for row in rows} == {1.0}
    elif len(known) > 1:
        assert max(row[WEIGHT] for row in known) <= max(0.5, 1.0 / len(known)) * total * (1 + 1e-9)
    for row, name in zip(rows, names, strict=True):
        assert all(-inf < x < inf for x in row)
        assert 0.0 <= row[WEIGHT] <= terms.largest_rate
        room = counting.schedule(1).noise
        assert -room <= row[MEAN] <= GRID + room, name
    mean, variance = seen(it, terms, "good")
    honest_rows = [row for row, name in zip(rows, names, strict=True) if name.startswith("honest")]
    weight = sum(row[WEIGHT] for row in honest_rows)
    of_honest = sum(row[WEIGHT] * row[MEAN] for row in honest_rows) / weight / GRID
    share = 1.0 - weight / total
    assert abs(mean - of_honest) <= share * (1.0 + counting.schedule(1).noise / GRID) * (1 + 1e-9) + 1e-12
    least = sum(row[WEIGHT] ** 2 * row[VARIANCE] for row in honest_rows) / total**2 / GRID**2
    assert variance >= least * (1 - 1e-9), "no lie makes what the honest do not know known"
    assert all(z < inf for z in distances(rows, counting.prior))


@given(st.lists(st.floats(0, 1e6), max_size=60), st.floats(0.02, 1.0))
def test_shares_are_cut_to_the_largest_and_no_further(weights, share):
    """As water fills a vessel: what is cut is level, the rest stays."""
    level = water_level(weights, share)
    cut = [min(w, level) for w in weights]
    positive = [w for w in weights if w > 0.0]
    if positive:
        most = max(share, 1.0 / len(positive))
        assert max(cut) <= most * sum(cut) * (1 + 1e-9)
        if level < max(weights) * (1 - 1e-12):
            assert max(cut) >= min(most, 1.0) * sum(cut) * (1 - 1e-6), "as much as is allowed"


@settings(max_examples=100, deadline=None)
@given(st.tuples(numbers), counts, st.sampled_from([GossipUCB(), FedUCB(1.0, horizon=1000)]))
def test_other_policies_count_as_what_their_page_can_publish(row, said, policy):
    """The mean of all that were heard: one site is 1 / N of it."""
    terms = Federation("test", ARMS, 0.0, 1.0, policy)
    good = [bulletin(terms, f"honest {j}", [ArmEntry("good", (0.5 * GRID,), 10, 10, 10)]) for j in range(4)]
    it = board(terms, *good, bulletin(terms, "liar", [ArmEntry("good", row, said, said, said)]))
    rows, versions = it.rows("good")
    assert versions == [1, 1, 1, 1, int(said > 0)]
    found = [0.0]
    mean_of_heard(rows, versions, [1.0] * 5, found)
    noise = 0.0 if isinstance(policy, GossipUCB) else rows[4][0] and Counting(terms)._page_noise(said)
    assert abs(found[0] / GRID - 0.5) <= 0.2 * (0.5 + noise / GRID) + 1e-12


# ---------------------------------------------------------------- what is refused, and what is undone


@pytest.mark.parametrize("x", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_refused(x):
    with pytest.raises(InvalidArgument, match="finite"):
        lie(SITES, "liar", (x, 0, 0))
    body = lie(SITES, "liar", (7, 0, 0)).body.replace(
        b"7.0", repr(x).replace("nan", "NaN").replace("inf", "Infinity").encode()
    )
    with pytest.raises(InvalidArgument, match="finite"):
        board(SITES).merge(Signed(body, b"", b""), NOW)


@pytest.mark.parametrize("kind", KINDS)
def test_exclude_undoes_all_of_it_at_once(kind):
    terms = KINDS[kind]
    others = [honest(terms, f"honest {j}", seeded(j)) for j in range(4)]
    it, without = board(terms, *others, lie(terms, "liar", (0, 0, GRID))), board(terms, *others)
    it.exclude({"liar"})
    assert [it.rows(arm) for arm in ARMS] == [without.rows(arm) for arm in ARMS]
    assert it.oddities(NOW) == {}


# ---------------------------------------------------------------- a liar among real sites


RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "liar"), ("liar", "a")]


def play(network, random, decisions=100):
    """Patients come to the honest sites in turn; the liar answers each bulletin with its row."""
    terms = network.terms
    for number in range(1, decisions + 1):
        for name in "abcd":
            taken = network.decide(name, draws_for(terms, random, 3))
            network.report(name, taken.id, float(random.random() < TRUTH[taken.arm]))
            network.now += 60.0
        tell(network, lie(terms, "liar", (0, 0, GRID)), number)
        network.run()


def tell(network, signed, number):
    """The liar signs what it likes, and gives it to both of its neighbours."""
    said = replace(board(network.terms, signed).held("liar").bulletin, incarnation=10**6, number=number)
    body = said.encode()
    for neighbour in ("a", "d"):
        network._send("liar", neighbour, None, (Signed(body, *simulated_signature("liar")(body)),))


@pytest.mark.parametrize("kind", KINDS)
def test_a_liar_in_a_ring_of_five_misleads_nobody(kind):
    """It says 0, 0 and 1 after each decision of the others, within all bounds. They say who."""
    terms = replace(KINDS[kind], policy=FedBatch(4.0), largest_share=0.2 if kind == "patients" else 0.5)
    network, random = MemoryNetwork(terms, RING, seed=7, spreads=True), seeded(7)
    for link in RING:
        network.exchange(*link)
    network.run()
    play(network, random)
    first = network.site("a")
    for name in "abcd":
        site = network.site(name)
        assert site.theta == first.theta, "bit for bit"
        assert site.theta[0] == pytest.approx(0.8 * 0.8, abs=0.1)
        assert site.theta[2] < site.theta[0]
        assert site.answer.leader == 0
        assert "liar" in site.oddities(network.now)
    network.exclude("a", "liar")
    assert network.site("a").theta[0] == pytest.approx(0.8, abs=0.1)
    assert network.site("b").theta == network.site("c").theta != network.site("a").theta


def test_nobody_signs_for_another():
    network = MemoryNetwork(SITES, RING, seed=1)
    for link in RING:
        network.exchange(*link)
    network.run()
    before = dict(network.site("a").board.have())
    body = Bulletin(SITES.digest(), "c", 10**6, 1, 0).encode()
    network._send("liar", "a", None, (Signed(body, *simulated_signature("liar")(body)),))
    network.run()
    assert dict(network.site("a").board.have()) == before
    assert network.refused == ["a forged bulletin, from liar"]
