"""Plays any page in plain Python on lists: a second reading of ``policies.protocol``, independent of the simulator."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from fedbandit.policies.plain import new_me, new_seen
from fedbandit.policies.protocol import Context, time_of


class Round(NamedTuple):
    """What is known at the end of a round: a row for each agent, an entry for each arm."""

    arms: list  # of each agent; empty at t = 0
    theta: list
    margin: list  # what the index of the next decision adds to theta; None: unknown, or the policy has none
    x_mean: list  # zeros if the page has none
    averages: list  # one name after the other
    n_max: list  # n~ for the next decision


class PlainEngine:
    """All agents of a policy on a tape. ``rule``: the policy's own links, all of them present.

    ``n_max_by_exchange``: n~ travels over the tape's edge, with releases as in a bulletin of a live site, and not from
    all neighbours in every round (Algorithm 1, line 5). ``shares``: of all agents, where releases spread; by default
    alike.
    """

    def __init__(self, tape, page, terms, rule=None, n_max_by_exchange=False, shares=None):
        self.tape, self.page, self.terms, self.rule, self.by_exchange = tape, page, terms, rule, n_max_by_exchange
        self.shares = shares or [1.0] * len(terms)
        self.takes_features = page.context == "features"
        self.spreads = tape.gossip == "releases" and page.network == "gossip"
        self.agents, self.arms = range(len(terms)), range(tape.rewards.shape[2])
        self.edges = [tuple(edge) for edge in tape.graph.edges]
        self.me = [new_me(page, mine, len(self.arms), tape.num_strata, tape.num_features) for mine in terms]
        self.strata = range(max(tape.num_strata, 1)) if page.context == "strata" else range(1)
        self.seen = [new_seen(page, len(self.arms)) for _ in terms]
        self.released = {}  # (agent, arm, level): the last reward in a release
        self.boards = [{} for _ in terms]  # where releases spread: by agent, its version and what it has published
        self.counts = {}  # of decisions, when an agent published a version
        assert rule is None or rule.presence == 1.0, "links that come and go are not on a tape"

    def rounds(self):
        """Every round, from the first pulls at t = 0."""
        before = self._averages()
        for i in self.agents:
            for k in self.arms:  # Algorithm 1, line 1
                change = self._pull(0, i, k)
                if not self.spreads and not self.page.records:
                    self._add(i, k, change)  # on any network, averages begin as what an agent publishes
                self.seen[i].n_max[k] = int(self.page.announced is not None)
        if self.page.network == "pooled" and not self.page.records:
            self._pool(self.arms)
        if self.spreads:
            self._publish()
        if self.page.records:
            self._receive()
        self._believe(before)
        yield self._shown(0, [])
        for t in range(1, self.tape.horizon + 1):
            yield self._shown(t, self._round(t))

    def _round(self, t):
        before, announces, network = self._averages(), self.page.announced is not None, self.page.network
        releases = [sum(getattr(me, "releases", [])) for me in self.me]
        n_max = self._heard_from_neighbours() if announces and not self.by_exchange else None
        arms = [self._decide(t, i) for i in self.agents]
        changes = [self._pull(t, i, arm) for i, arm in enumerate(arms)]
        if announces:
            n_max = n_max or (None if self.spreads else self._heard_by_exchange(t))
            for i in self.agents if n_max else ():
                self.seen[i].n_max[:] = n_max[i]
        if self.spreads:
            self._pass_on(t)
        elif network == "gossip":
            self._mix(t)
        if network in ("gossip", "consensus", "alone") and not self.spreads and not self.page.records:
            for i, arm in enumerate(arms):
                self._add(i, arm, changes[i])
        if network == "consensus":
            self._mix(t)
        if network == "pooled" and not self.page.records:
            self._pool(set(arms))
        if self.page.reweigh is not None:
            for i in self.agents:
                if sum(self.me[i].releases) > releases[i]:
                    self._reweigh(t, i)
        if self.spreads:
            self._publish()
        if announces and n_max is None:
            self._count_on_boards()
        if self.page.records:
            self._receive()
        self._believe(before)
        if self.page.meet is not None:
            self.page.meet(self.me, self.terms, self.seen, np.array(self.edges), [1] * len(self.edges))
        return arms

    # ---------------------------------------------------------------- one agent

    def _decide(self, t, i):
        draws = SimpleNamespace(u=self.tape.picks[t - 1, i], normals=self.tape.normals[t - 1, i].tolist())
        context = self._context(self._stratum(t, i), self._features(t, i))
        return self.page.decide(self.me[i], self.terms[i], self.seen[i], time_of(t), draws, *context)

    def _stratum(self, t, i, arm=None):
        """Of the decision of round t; at t = 0 of the first pull of an arm."""
        if self.tape.strata is None:
            return 0
        return int(self.tape.strata[arm if t == 0 else len(self.arms) - 1 + t, i])

    def _features(self, t, i, arm=None):
        """The same of its features."""
        if self.tape.features is None:
            return ()
        return self.tape.features[arm if t == 0 else len(self.arms) - 1 + t, i].tolist()

    def _context(self, stratum, features=()):
        return () if self.page.context is None else (Context(stratum, features),)

    def _pull(self, t, i, arm):
        """Count the decision, then take its reward; what has changed in what the agent publishes."""
        page, me, terms = self.page, self.me[i], self.terms[i]
        me.tried[arm] += 1
        if "tried_in" in page.knows:
            me.tried_in[arm][self._stratum(t, i, arm)] += 1
        context = self._context(self._stratum(t, i, arm), self._features(t, i, arm))
        if context:
            return self._pull_in_context(t, i, arm, context[0])
        before = page.published(me, terms, arm)
        due = 0 if page.noise_due is None else page.noise_due(me, terms, arm)
        noise = tuple(self._noise(i, arm, end) for end in due) if isinstance(due, tuple) else self._noise(i, arm, due)
        page.observe(me, terms, arm, float(self.tape.rewards[t, i, arm]), noise)
        return [y - x for x, y in zip(before, page.published(me, terms, arm), strict=True)]

    def _pull_in_context(self, t, i, arm, context):
        """The same for a page that takes the context: it may release several sums, each with its own noise."""
        page, me, terms = self.page, self.me[i], self.terms[i]
        before = list(page.published(me, terms, arm)) if page.published else []
        noise = 0.0
        if page.noise_due is not None:
            noise = me.noise
            end = page.noise_due(me, terms, arm, context)
            if end > 0 and self.takes_features:
                self._fill_noise(i, arm, end)
            elif end > 0:
                for s in self.strata:
                    noise[s] = self._noise(i, s * len(self.arms) + arm, me.due[s])
        page.observe(me, terms, arm, float(self.tape.rewards[t, i, arm]), noise, context)
        return [y - x for x, y in zip(before, page.published(me, terms, arm), strict=True)] if before else []

    def _fill_noise(self, i, arm, end):
        """The noise of all that a page releases at once: of one arm, or of all."""
        me, rows = self.me[i], [row for name in ("noise", "gram_noise") if (row := getattr(self.me[i], name, None))]
        per_arm, total = not hasattr(me, "gram_noise"), sum(map(_size, rows))
        drawn = self.tape.noise[end, i, arm * total if per_arm else 0 :] * self.terms[i].noise_scale
        numbers = iter(drawn.tolist())
        for row in rows:
            _fill(row, numbers)

    def _records(self, i, arm):
        """What an agent's records of an arm are, its numbers in one row."""
        return [x for name in self.page.records for x in _numbers(getattr(self.me[i], name)[arm])]

    def _receive(self):
        """Everybody makes what there is to make of all records that it knows of."""
        page, agents = self.page, self.agents
        own = [[self._records(i, k) for k in self.arms] for i in agents]
        for i in agents:
            for k in self.arms:
                if page.network == "pooled":
                    rows, versions = [[sum(column) for column in zip(*(own[j][k] for j in agents), strict=True)]], [1]
                elif page.network == "alone":
                    rows, versions = [own[i][k]], [1]
                else:
                    board, nothing = self.boards[i], [0.0] * len(own[i][k])
                    rows = [board[j][1][k] if j in board else nothing for j in agents]
                    versions = [board[j][0] if j in board else 0 for j in agents]
                page.receive(self.me[i], self.terms[i], k, rows, versions)

    def _reweigh(self, t, i):
        """After a release: the agent's weight, what that changes of any arm, and what it means for others."""
        page, me, terms = self.page, self.me[i], self.terms[i]
        if self.spreads:
            page.reweigh(me, terms, float(t))
            return
        before = [page.published(me, terms, k) for k in self.arms]
        page.reweigh(me, terms, float(t))
        for k in self.arms:
            self._add(i, k, [y - x for x, y in zip(before[k], page.published(me, terms, k), strict=True)])
        for k in self.arms:
            page.believe(me, terms, self.seen[i], k)

    def _noise(self, i, arm, end):
        if end == 0:
            return 0.0
        if self.page.interval is not None:
            first, level = self.page.interval(self.me[i], self.terms[i], arm, end)
            assert self.released.get((i, arm, level), 0) < first <= end, "releases of one level overlap"
            self.released[i, arm, level] = end
        return float(self.tape.noise[end, i, arm]) * self.terms[i].noise_scale

    def _add(self, i, arm, change):
        for name, x in zip(self.page.averaged, change, strict=True):
            getattr(self.seen[i], name)[arm] += x

    def _believe(self, before):
        """Each agent, of the arms whose averages have changed."""
        after, num_arms = self._averages(), len(self.arms)
        for i in self.agents:
            for k in self.arms:
                if self.page.believe is not None and before[i][k::num_arms] != after[i][k::num_arms]:
                    self.page.believe(self.me[i], self.terms[i], self.seen[i], k)

    # ---------------------------------------------------------------- the network

    def _averages(self):
        return [[x for name in self.page.averaged for x in getattr(seen, name)] for seen in self.seen]

    def _mix(self, t):
        """Over the tape's edge; over all edges if the policy has links of its own."""
        edges = [tuple(self.tape.edges[t - 1])] if self.rule is None else self.edges
        degree = [sum(i in edge for edge in edges) for i in self.agents]
        for name in self.page.averaged:
            rows = [getattr(seen, name) for seen in self.seen]
            old = [row.copy() for row in rows]
            for i, j in edges:
                metropolis = 1 / (1 + max(degree[i], degree[j]))  # of a lone edge 1/2: the plain average
                weight = (self.rule and self.rule.weight) or metropolis
                for k in self.arms:
                    rows[i][k] += weight * (old[j][k] - old[i][k])
                    rows[j][k] += weight * (old[i][k] - old[j][k])

    def _pass_on(self, t):
        """Every end of an active link gets what the other end had before this round of anybody, if it is newer."""
        edges = [tuple(self.tape.edges[t - 1])] if self.rule is None else self.edges
        before = [dict(board) for board in self.boards]
        for i, j in [*edges, *((j, i) for i, j in edges)]:
            for origin, (version, rows) in before[j].items():
                if origin not in self.boards[i] or self.boards[i][origin][0] < version:
                    self.boards[i][origin] = version, rows

    def _publish(self):
        """Each agent, all that it publishes, if anything has changed; then everybody adds up what it holds."""
        for i in self.agents:
            rows = [
                self._records(i, k) if self.page.records else self.page.published(self.me[i], self.terms[i], k)
                for k in self.arms
            ]
            version, last = self.boards[i].get(i, (0, None))
            if rows != last:
                self.boards[i][i] = version + 1, rows
                self.counts[i, version + 1] = self._announced()[i] if self.page.announced is not None else None
        for i, board in enumerate(self.boards if not self.page.records else ()):
            heard = len(self.agents) if len(board) == len(self.agents) else sum(self.shares[j] for j in board)
            for k in self.arms:
                for name, value in zip(self.page.averaged, self._combined(i, board, k, heard), strict=True):
                    getattr(self.seen[i], name)[k] = value

    def _combined(self, i, board, k, heard):
        if self.page.combine is not None:
            nothing = [0.0] * len(self.page.published_names)
            rows = [board[j][1][k] if j in board else nothing for j in self.agents]
            return self.page.combine(self.terms[i], rows, [board[j][0] if j in board else 0 for j in self.agents])
        return [sum(board[j][1][k][c] for j in sorted(board)) / heard for c in range(len(self.page.averaged))]

    def _pool(self, arms):
        for k in arms:
            published = [self.page.published(self.me[i], self.terms[i], k) for i in self.agents]
            for name, column in zip(self.page.averaged, zip(*published, strict=True), strict=True):
                for seen in self.seen:
                    getattr(seen, name)[k] = sum(column)

    def _announced(self):
        return [[self.page.announced(self.me[i], self.terms[i], k) for k in self.arms] for i in self.agents]

    def _heard_from_neighbours(self):
        """n~(t+1): the largest of the agent's own count before this round and its neighbours' n~(t)."""
        own = self._announced()
        nearby = [[self.seen[j].n_max for j in self.tape.graph.neighbours[i]] for i in self.agents]
        return [[max(own[i][k], *(n_max[k] for n_max in nearby[i])) for k in self.arms] for i in self.agents]

    def _count_on_boards(self):
        for i, board in enumerate(self.boards if self.page.announced is not None else ()):
            said = [self.counts[j, board[j][0]] for j in board]
            self.seen[i].n_max[:] = map(max, self._announced()[i], *said)

    def _heard_by_exchange(self, t):
        known = [[*map(max, own, seen.n_max)] for own, seen in zip(self._announced(), self.seen, strict=True)]
        i, j = self.tape.edges[t - 1]
        known[i] = known[j] = [*map(max, known[i], known[j])]
        return known

    # ---------------------------------------------------------------- what can be seen

    def _shown(self, t, arms):
        page, now, margin = self.page, time_of(t + 1), self.page.margin or self.page.radius

        def estimates():
            average = () if self.tape.features is None else self.tape.features.mean(axis=(0, 1)).tolist()
            given = [(k, *self._context(s, average)) for s in self.strata for k in self.arms]
            return [[page.estimate(self.me[i], self.terms[i], self.seen[i], *it) for it in given] for i in self.agents]

        def rows(value):
            return [[value(self.me[i], self.terms[i], self.seen[i], k) for k in self.arms] for i in self.agents]

        def margin_of(me, terms, seen, k):
            has_none = margin is None or (page.unknown is not None and page.unknown(me, k))
            return None if has_none else margin(me, terms, seen, now, k, *self._context(0))

        return Round(
            arms,
            estimates(),
            rows(margin_of),
            [list(getattr(me, "x_mean", [0.0] * len(self.arms))) for me in self.me],
            self._averages(),
            [list(seen.n_max) for seen in self.seen],
        )


def _numbers(value):
    """All numbers of rows in rows."""
    return [x for row in value for x in _numbers(row)] if isinstance(value, list) else [value]


def _size(value):
    return len(_numbers(value))


def _fill(row, numbers):
    for c, entry in enumerate(row):
        if isinstance(entry, list):
            _fill(entry, numbers)
        else:
            row[c] = next(numbers)
