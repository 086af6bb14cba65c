"""Rules to break, one at a time, and the tests that should notice: the table of ``test_mutants.py``."""

from typing import NamedTuple

__all__ = ["AREAS", "MUTANTS", "Mutant"]


class Mutant(NamedTuple):
    """A text in a file of the package, its replacement, and the tests that should notice, the fastest first."""

    file: str
    before: str
    after: str
    watchers: tuple[str, ...]


BELIEVED = "test_liars.py::test_sites_that_are_invented_make_nobody_surer_than_its_operator_allows["
LAG = "test_paper.py::test_algorithm_1_word_for_word_where_agents_lag"
STREAMS = "test_simulate.py::test_the_engine_is_the_paper_on_its_own_streams"
RATES = "test_simulate.py::test_agents_that_do_not_act_in_step_word_for_word"
REPAIRED = "test_paper.py::test_fed_ucb_is_algorithm_4_repaired"
CATCHING_UP = "test_fedbatch.py::test_catching_up_word_for_word"
STORY = "test_site.py::TestSiteAndJournal"
REPEATED = "test_site.py::test_a_repeated_reward_changes_nothing_and_tells_nothing"
ERASED = "test_raw_rewards.py::test_rewards_leave_the_files_once_they_count"
ON_FILE = "test_site.py::test_the_file_knows_all_that_memory_does"
TREE_ON_FILE = "test_agent_policies.py::test_the_file_knows_all_that_memory_does"
OLD_DECISIONS = "test_schema3.py::test_old_decisions_count_as_they_come_and_hold_up_no_new_ones"
IN_ORDER = "test_late_rewards.py::test_rewards_count_in_the_order_of_decisions"
AT_ITS_END = "test_late_rewards.py::test_a_reward_counts_when_its_window_ends"
DEFAULT = "test_late_rewards.py::test_a_missing_reward_counts_with_the_default_and_a_late_one_does_not_count"
EXPIRED_LATE = "test_late_rewards.py::test_nothing_is_forgotten_before_its_window_is_over"
SET_BACK = "test_late_rewards.py::test_a_clock_that_is_set_back_neither_reopens_nor_prolongs_a_window"
JUMPS = "test_late_rewards.py::test_a_clock_that_jumps_ahead_for_good_ends_windows_and_goes_on_from_there"
WHEN_THEY_COME = "test_late_clocks.py::test_when_rewards_come_changes_nothing_that_others_see"
MIGRATED = "test_schema2.py::test_a_migrated_site_shows_what_it_showed_and_goes_on_as_it_would_have"

PAPER = {
    "no consistency rule (line 6)": Mutant(
        "rules/choose.py",
        "        if n[k] < n_max[k] - allowed:  # line 6\n            lagging += 1",
        "        if False:\n            lagging += 1",
        (LAG,),
    ),
    "consistency one pull too strict": Mutant(
        "policies/gossip_ucb.py",
        "    lagging = count_lagging(me.tried, seen.n_max, terms.num_agents)  # line 6\n"
        "    if lagging > 0:\n"
        "        me.caught_up += 1\n"
        "        return nth_lagging(me.tried, seen.n_max, terms.num_agents,",
        "    lagging = count_lagging(me.tried, seen.n_max, terms.num_agents - 1)\n"
        "    if lagging > 0:\n"
        "        me.caught_up += 1\n"
        "        return nth_lagging(me.tried, seen.n_max, terms.num_agents - 1,",
        (LAG,),
    ),
    "the first lagging arm, not a random one (line 13)": Mutant(
        "rules/choose.py", "            if position == 0:\n", "            if position >= 0:\n", (LAG,)
    ),
    "the last arm wins a tie": Mutant(
        "rules/choose.py",
        "        if belief[k] > best_even:\n"
        "            even, best_even = k, belief[k]\n"
        "        if belief[k + 1] > best_odd:\n"
        "            odd, best_odd = k + 1, belief[k + 1]\n"
        "    last = len(belief) - 1\n"
        "    if last % 2 == 0 and belief[last] > best_even:\n"
        "        even, best_even = last, belief[last]\n"
        "    return odd if best_odd > best_even or (best_odd == best_even and odd < even) else even\n",
        "        if belief[k] >= best_even:\n"
        "            even, best_even = k, belief[k]\n"
        "        if belief[k + 1] >= best_odd:\n"
        "            odd, best_odd = k + 1, belief[k + 1]\n"
        "    last = len(belief) - 1\n"
        "    if last % 2 == 0 and belief[last] >= best_even:\n"
        "        even, best_even = last, belief[last]\n"
        "    return odd if best_odd > best_even or (best_odd == best_even and odd > even) else even\n",
        ("test_paper.py::test_line_10_the_first_of_the_largest", "test_paper.py::test_at_t_1_the_first_arm_wins_a_tie"),
    ),
    "of an even and an odd arm the later one wins a tie": Mutant(
        "rules/choose.py",
        "odd < even) else even",
        "odd > even) else even",
        ("test_paper.py::test_line_10_the_first_of_the_largest", "test_paper.py::test_at_t_1_the_first_arm_wins_a_tie"),
    ),
    "an even arm wins a tie with an earlier odd one": Mutant(
        "rules/choose.py",
        "return odd if best_odd > best_even or (best_odd == best_even and odd < even) else even",
        "return odd if best_odd > best_even else even",
        ("test_paper.py::test_line_10_the_first_of_the_largest",),
    ),
    "averaging after the increment instead of before (line 20)": Mutant(
        "engine/phases.py",
        "        network=page.network,\n",
        '        network="consensus" if page.network == "gossip" else page.network,\n',
        (LAG, "test_paper.py::test_algorithm_1_word_for_word"),
    ),
    "n~ one round early: lagging against n~(t+1)": Mutant(
        "engine/phases.py",
        "        hear_n_max(announced, population.agents[i], fixed, population.agents, population.n_max, links, i)\n",
        "        hear_n_max(announced, population.agents[i], fixed, population.agents, population.n_max, links, i)\n"
        "        for k in range(population.n_max.shape[1]):\n"
        "            population.agents[i].n_max[k] = population.n_max[i, k]\n",
        (LAG,),
    ),
    "n~ one round late, every other round": Mutant(
        "engine/phases.py",
        "        if announces and t > 0:\n",
        "        if announces and t % 2 == 1:\n",
        (LAG,),
    ),
    "n~ hears only the own count (line 5)": Mutant(
        "rules/gossip.py",
        "return neighbour_n_max if neighbour_n_max > known else known",
        "return known",
        ("test_paper.py::test_lemma_1_information_propagation",),
    ),
    "the average keeps one end's value": Mutant(
        "rules/gossip.py",
        "(theta_i + theta_j) / 2.0",
        "theta_i",
        ("test_flow.py::test_moved_lands_on_the_average", LAG),
    ),
    "C without the factor N": Mutant(
        "rules/radius.py", "return 2.0 * num_agents * constant / n", "return 2.0 * constant / n", (LAG,)
    ),
    "C~ with log n where the first pull is noised": Mutant(
        "policies/fed_ucb.py",
        "private_noise(n, n, ",
        "private_noise(n, n - 1, ",
        ("test_paper.py::test_a_starved_arm_comes_back",),
    ),
    "the first pull goes out raw": Mutant(
        "rules/mean.py",
        "    total = prefix_noise(slots, n & (n - 1)) + fresh\n",
        "    total = prefix_noise(slots, n & (n - 1)) + (fresh if n > 1 else 0.0)\n",
        ("test_paper.py::test_noise_of_a_prefix_costs_one_draw_and_is_algorithm_3",),
    ),
    "the engine draws no noise for the first pull": Mutant(
        "engine/phases.py",
        "            due = noise_due(me, fixed, arm)\n",
        "            due = noise_due(me, fixed, arm) if turn.clock > 0 else 0\n",
        ("test_paper.py::test_no_raw_reward_is_published",),
    ),
    "eps' = eps / ceil(log T)": Mutant(
        "rules/mean.py",
        "return epsilon / max_pulls.bit_length()",
        "return epsilon / max(1, ceil(log(max_pulls)))",
        ("test_paper.py::test_nodes_per_reward",),
    ),
    "rewards are not clamped": Mutant(
        "rules/mean.py",
        "return min(max(reward, low), high)",
        "return reward",
        ("test_privacy.py::test_rewards_are_clamped",),
    ),
    "the engine does not clamp for Fed_UCB": Mutant(
        "policies/fed_ucb.py",
        "me.total[arm] += clamp(reward, terms.low, terms.high)",
        "me.total[arm] += reward",
        (REPAIRED,),
    ),
    "noise is redrawn every time": Mutant(
        "engine/phases.py",
        "i, arm, fixed.noise_scale, due)\n",
        "i, arm, fixed.noise_scale, turn.clock + 1)\n",
        ("test_simulate.py::test_noise_is_keyed_by_arm_and_pull",),
    ),
    "empty partial sums get noise too": Mutant(
        "rules/mean.py",
        "if first_new != t and last > shared:",
        "if first_new != t:",
        ("test_paper.py::test_noise_over_time_is_algorithm_3",),
    ),
    "the range ignored in C~": Mutant(
        "policies/fed_ucb.py", "epsilon=self.epsilon * setting.scale / width,", "epsilon=self.epsilon,", (REPAIRED,)
    ),
    "weights are ignored": Mutant(
        "policies/gossip_ucb.py",
        "return (terms.share * me.x_mean[arm],)",
        "return (me.x_mean[arm],)",
        ("test_simulate.py::test_weights_decide_what_is_learnt",),
    ),
}

ENGINE = {
    "several edges average without conserving the sum": Mutant(
        "engine/links.py",
        "                mixed[j, c] -= step\n",
        "",
        ("test_simulate.py::test_more_edges_per_round",),
    ),
    "all trials are the same": Mutant(
        "engine/streams.py",
        "s = _mix((s ^ np.uint64(trial)) + GOLDEN)",
        "s = _mix(s + GOLDEN)",
        ("test_streams.py::test_every_part_of_a_name_counts",),
    ),
    "the normal loses its tail": Mutant(
        "engine/streams.py",
        "return edge + beyond",
        "return edge",
        ("test_streams.py::test_the_tails_of_the_normal",),
    ),
    "a normal is uniform in its slab": Mutant(
        "engine/streams.py",
        "height < exp(0.5 * (inner - x) * (inner + x))",
        "height < 1.0",
        ("test_streams.py::test_a_normal_lies_in_its_slab_as_a_normal_does",),
    ),
    "a lone rival of the likely arm is not drawn": Mutant(
        "engine/streams.py",
        "return likely if contenders == 1",
        "return likely if contenders <= 2",
        ("test_streams.py::test_the_highest_draw_is_the_highest_of_all_normals_whoever_is_thought_likely",),
    ),
    "rewards drawn by round instead of by pull": Mutant(
        "engine/phases.py",
        "draw(mine.rewards[arm], np.uint64(me.tried[arm]))",
        "draw(mine.rewards[arm], np.uint64(t))",
        (f"{STREAMS}[bernoulli]",),
    ),
    "sigma ignored": Mutant(
        "engine/streams.py",
        "means[i, arm] + sigma * standard_normal(bits)",
        "means[i, arm] + standard_normal(bits)",
        (f"{STREAMS}[gaussian]",),
    ),
    "slow agents act in every round": Mutant("engine/phases.py", "< world.rates[i]\n", "< 1.0\n", (RATES,)),
    "all agents share the fastest clock": Mutant(
        "engine/phases.py", "now = time_of(turn.clock)\n", "now = time_of(t)\n", (RATES,)
    ),
    "a release does not change what its agent believes": Mutant(
        "engine/phases.py",
        "elif turn.released > 0 or (turn.acts > 0 and not is_private):\n",
        "elif False:\n",
        (CATCHING_UP,),
    ),
}

REWARDS = {
    "lighter tails": Mutant(
        "engine/streams.py",
        "expm1(-2.0 / degrees_of_freedom * log(w))",
        "expm1(-1.9 / degrees_of_freedom * log(w))",
        ("test_streams.py::test_distribution",),
    ),
    "an infinite variance is taken for a finite one": Mutant(
        "rewards.py",
        "if d > 2.0 else inf\n",
        "if d > 2.0 else self.width**2\n",
        ("test_rewards.py::test_what_a_policy_is_told_of_heavy_tails",),
    ),
    "samples of another agent": Mutant(
        "engine/streams.py",
        "values[first[i, arm] +",
        "values[first[0, arm] +",
        ("test_rewards.py::test_samples_are_drawn_with_replacement",),
    ),
    "a range computed from the data": Mutant(
        "samples.py",
        "    return Empirical(values, first, count, told.hexdigest(), agents, arms, reward_range)\n",
        "    found = (float(values.min()), float(values.max()))\n"
        "    return Empirical(values, first, count, told.hexdigest(), agents, arms, reward_range or found)\n",
        ("test_rewards.py::test_what_a_policy_is_told_of_samples",),
    ),
    "a gap in the numbers of arms": Mutant(
        "samples.py",
        "    if missing:\n",
        "    if False:\n",
        ("test_rewards.py::test_a_mistake_in_a_csv_file_is_named",),
    ),
    "a resumed sweep takes other samples for the same": Mutant(
        "rewards.py",
        '"sha256": self.digest, ',
        "",
        ("test_rewards.py::test_a_resumed_sweep_knows_its_rewards",),
    ),
    "an edited draw runs as it was": Mutant(
        "engine/phases.py",
        "SOURCES + own_code + code_of(family) + links.code",
        "SOURCES + own_code + links.code",
        ("test_rewards.py::test_an_edited_draw_is_never_run_stale",),
    ),
    "a draw with a state": Mutant(
        "simulation/rehearsal.py",
        "mean) != reward:",
        "mean) != reward and False:",
        ("test_rewards.py::test_a_wrong_draw_is_refused_in_words",),
    ),
    "a draw with another mean": Mutant(
        "simulation/rehearsal.py",
        "if abs(middle - mean) > 2.0 * ",
        "if abs(middle - mean) > 20.0 * ",
        ("test_rewards.py::test_a_wrong_draw_is_refused_in_words",),
    ),
    "a private policy trusts a draw that is not bounded": Mutant(
        "engine/layout.py",
        "bounded=problem.rewards.bounded,",
        "bounded=True,",
        ("test_rewards.py::test_what_a_policy_is_told_of_a_draw",),
    ),
}

CHANGING = {
    "regret is counted with the gaps of the last means": Mutant(
        "engine/cpu.py",
        "                books.settle(truth, tried)\n",
        "",
        ("test_changing.py::test_regret_is_counted_against_the_best_arm_of_the_moment",),
    ),
    "a change of the means comes one round late": Mutant(
        "engine/cpu.py",
        "            next_change = changes[bisect(changes, first)]\n",
        "            next_change = changes[bisect(changes, first)] + 1\n",
        ("test_changing.py",),
    ),
    "only the first graph of a schedule is used": Mutant(
        "engine/cpu.py",
        "                links[bisect(link_starts, first) - 1],\n",
        "                links[0],\n",
        ("test_changing.py::test_a_schedule_uses_the_links_of_each_period",),
    ),
    "n~ spreads over contacts that are not there": Mutant(
        "engine/network.py",
        "        if links.present[e]:\n            i, j = links.edges[e, 0], links.edges[e, 1]\n            for k",
        "        if True:\n            i, j = links.edges[e, 0], links.edges[e, 1]\n            for k",
        ("test_changing.py::test_counts_spread_over_the_links_that_exist_only",),
    ),
    "an edited rule for links runs as it was": Mutant(
        "engine/phases.py",
        "SOURCES + own_code + code_of(family) + links.code",
        "SOURCES + own_code + code_of(family)",
        ("test_changing.py::test_an_edited_rule_is_never_run_stale",),
    ),
    "a rule for links that throws dice": Mutant(
        "simulation/rehearsal.py",
        "    if plain != [_met(meets, *place) for place in places]:\n",
        "    if False:\n",
        ("test_changing.py::test_what_a_rule_does_wrong_is_said_in_words",),
    ),
    "parts of two versions are joined": Mutant(
        "simulation/parts.py",
        '_COMPUTES = ("fedbandit", "engine", "numba")',
        "_COMPUTES = ()",
        ("test_concat.py",),
    ),
}

SLOTS = "test_delays.py::test_the_simulator_plays_slots_as_they_are_defined"

DELAYS = {
    "a window ends one round late": Mutant(
        "engine/late_rewards.py",
        "np.int64(lateness.window - 1)",
        "np.int64(lateness.window)",
        ("test_delays.py::test_a_window_without_delays_is_a_fixed_delay_of_the_same_rounds", SLOTS),
    ),
    "a reward counts that comes when its window has ended": Mutant(
        "engine/late_rewards.py", "if delay < lateness.window", "if delay <= lateness.window", (SLOTS,)
    ),
    "rewards count in the order of arrival": Mutant(
        "engine/late_rewards.py",
        "due = max(t + delay, waiting.latest[i, arm])",
        "due = t + delay",
        (SLOTS,),
    ),
    "good outcomes take as long as bad ones": Mutant(
        "engine/late_rewards.py",
        "good = 1 if reward > lateness.middle else 0",
        "good = 0",
        ("test_delays.py::test_geometric_delays_have_their_distribution",),
    ),
    "geometric delays are one round too long": Mutant(
        "engine/late_rewards.py",
        "np.int64(log(1.0 - uniform(bits)) * scale)",
        "np.int64(1.0 + log(1.0 - uniform(bits)) * scale)",
        ("test_delays.py::test_geometric_delays_have_their_distribution",),
    ),
    "a missing reward counts as 0 whatever the default": Mutant(
        "engine/late_rewards.py", "else lateness.default", "else 0.0", (SLOTS,)
    ),
    "only one of several slots in a round counts": Mutant(
        "engine/late_rewards.py", "return waiting.after[i, place - 1]", "return 0 * place", (SLOTS,)
    ),
    "news of an arm that counts twice in a round is half of it": Mutant(
        "engine/late_rewards.py", "    if waiting.news[i, arm] == 0:\n", "    if True:\n", (SLOTS,)
    ),
    "late news is averaged in its own round": Mutant(
        "engine/phases.py",
        "        network=page.network,\n",
        '        network="consensus" if is_late and page.network == "gossip" else page.network,\n',
        (SLOTS,),
    ),
    "an arm without a reward that counts is judged": Mutant(
        "engine/phases.py",
        "elif waits and waiting.num_unobserved[i] > 0:",
        "elif waits and waiting.num_unobserved[i] > 10**6:",
        ("test_delays.py::test_rewards_that_never_count_leave_a_round_robin",),
    ),
    "a late reward is of the wrong slot's delay": Mutant(
        "engine/phases.py", "arm, me.tried[arm] - 1, t, reward)", "arm, me.tried[arm], t, reward)", (SLOTS,)
    ),
    "late rewards are given to a policy that needs them at once": Mutant(
        "policies/adap_ucb.py",
        "        needs_rewards_at_once(self, setting)\n",
        "",
        ("test_delays.py::test_policies_that_need_each_reward_at_once_refuse_late_ones",),
    ),
}

OUTSIDE = {
    "an edited page runs as it was": Mutant(
        "engine/phases.py",
        "SOURCES + own_code + code_of(family) + links.code",
        "SOURCES + code_of(family) + links.code",
        ("test_own_policy.py::test_an_edited_file_never_runs_stale",),
    ),
    "an arm that does not exist is pulled": Mutant(
        "engine/phases.py",
        "if is_guarded and arm >= np.uint64(num_arms):",
        "if is_guarded and arm > np.uint64(10**6):",
        ("test_own_policy.py::test_an_arm_beyond_the_rows_stops_the_run",),
    ),
    "a subclass of a built-in policy runs": Mutant(
        "outside/policies.py",
        "    if isinstance(policy, tuple(POLICIES.values())) and kind not in POLICIES.values():\n",
        "    if False:\n",
        ("test_simulate.py", "test_own_policy.py"),
    ),
    "the proof does not add up what a reward is spent on": Mutant(
        "outside/coupling.py",
        "    if cost > epsilon * (1.0 + SAME):\n",
        "    if cost > 2.0 * epsilon:\n",
        ("test_testing.py::test_planted_leaks_are_accused",),
    ),
    "the proof forgets to look at decisions": Mutant(
        "outside/coupling.py",
        "        if arm != other:\n",
        "        if False:\n",
        ("test_testing.py::test_planted_leaks_are_accused",),
    ),
    "compiled code of one's own does not check its indices": Mutant(
        "engine/compiled.py",
        '"boundscheck": True, "error_model": "python"',
        '"error_model": "python"',
        ("test_own_policy.py::test_what_goes_wrong_late_stops_the_run",),
    ),
    "a digest looks one module deep": Mutant(
        "outside/modules.py",
        "            if not isinstance(value, (ModuleType, type)):\n                break\n",
        "            if not isinstance(value, (ModuleType, type)) or '.' in name:\n                break\n",
        ("test_own_policy.py::test_the_digest_follows_modules_of_modules",),
    ),
    "raw numbers may be compared anywhere": Mutant(
        "outside/taint.py",
        '        if self.stage.playing != "observe":\n',
        "        if False:\n",
        ("test_testing.py::test_planted_leaks_are_accused",),
    ),
    "the last digits of what is published do not count": Mutant(
        "outside/coupling.py",
        "            if values != others and not beyond:",
        "            if False:",
        ("test_testing.py::test_planted_leaks_are_accused",),
    ),
    "a site plays a policy that it does not trust": Mutant(
        "agent/core/own_policy.py",
        "    if kind != trusted:\n",
        "    if False:\n",
        ("test_testing.py",),
    ),
}

FED_BATCH = {
    "a batch with one reward too few": Mutant(
        "rules/batch.py",
        "return max(first_batch, ceil(",
        "return max(first_batch - 1, ceil(",
        ("test_fedbatch.py::test_a_batch_never_shrinks",),
    ),
    "expected decisions do not size the first batch": Mutant(
        "rules/batch.py",
        "    if expected_decisions is None:\n",
        "    if True:\n",
        ("test_few_patients.py::test_the_first_batch_follows_from_the_expected_decisions",),
    ),
    "a first batch as small as the decisions": Mutant(
        "rules/batch.py",
        "max(expected_decisions / (4.0 * num_arms), LEAST_FIRST_BATCH)",
        "expected_decisions / (4.0 * num_arms)",
        ("test_few_patients.py::test_the_first_batch_follows_from_the_expected_decisions",),
    ),
    "the first batches of two arms take a quarter, whatever the arms": Mutant(
        "rules/batch.py",
        "(4.0 * num_arms)",
        "8.0",
        ("test_few_patients.py::test_the_first_batch_follows_from_the_expected_decisions",),
    ),
    "too few patients are not told": Mutant(
        "agent/core/notices.py",
        "(*([] if few is None else [few]), *said)",
        "tuple(said)",
        ("test_few_patients.py::test_the_operator_is_warned",),
    ),
    "warnings are not logged at the start": Mutant(
        "agent/process/logs.py",
        'self._log.log(logging.INFO if isinstance(warning, Note) else logging.WARNING, "%s", warning)',
        "pass",
        ("test_few_patients.py::test_the_log_and_the_state_say_so_at_the_start",),
    ),
    "the epsilon that would do is rounded to the nearest": Mutant(
        "policies/few_patients.py",
        "round(ceil(value * 10.0**places) / 10.0**places, max(places, 0))",
        "round(value, places)",
        ("test_few_patients.py::test_what_the_words_name_would_do_and_hardly_less_would",),
    ),
    "a term that nobody chose changes the digest": Mutant(
        "agent/core/federation.py",
        '            del plain["policy"]["expected_decisions"]\n',
        "            pass\n",
        ("test_few_patients.py::test_digests_of_existing_federations_hold",),
    ),
    "batches shrink after the first": Mutant(
        "rules/batch.py",
        "return max(first_batch, ceil(min((growth - 1.0) * n, MAX_BATCH)))",
        "return ceil(min((growth - 1.0) * n, MAX_BATCH)) if n else first_batch",
        ("test_fedbatch.py::test_a_batch_never_shrinks",),
    ),
    "batches are released without noise": Mutant(
        "rules/batch.py",
        "return (total + noise) / size",
        "return total / size",
        ("test_privacy.py::test_release_carries_noise",),
    ),
    "releases weigh alike": Mutant(
        "rules/batch.py", "return 1.0 / (variance * precision)", "return 0.5", (CATCHING_UP,)
    ),
    "the learnt variance has no floor": Mutant(
        "rules/batch.py",
        "+ variance, least), most)",
        "+ variance, 0.0), most)",
        ("test_fedbatch.py::test_the_variance_learnt_from_the_mean",),
    ),
    "rewards of the last batch stay in the next sum": Mutant(
        "policies/fed_batch.py",
        "        me.total[arm] = 0\n",
        "",
        ("test_site.py::test_a_release_is_among_the_records_of_its_reward",),
    ),
    "a site without a release counts as zero": Mutant(
        "policies/fed_batch.py",
        "(me.share if me.releases[arm] > 0 else 0.0)",
        "me.share",
        ("test_site.py::test_neighbours_bring_the_links_of_a_lost_disk_back",),
    ),
    "unknown arms are not tried": Mutant(
        "rules/gossip.py",
        "return releases > 0 and weight > 0.0 and weight",
        "return weight > 0.0 and weight",
        ("test_site.py::test_under_the_papers_policies_a_site_tries_every_arm_itself",),
    ),
    "Thompson draws with the variance for the deviation": Mutant(
        "rules/radius.py", "return sqrt(variance)", "return variance", (CATCHING_UP,)
    ),
    "d_eps without noise": Mutant(
        "rules/kl.py",
        "if x * mass >= q * tilt:",
        "if x >= 0.0:",
        ("test_fedbatch.py::test_the_private_divergence_is_d_eps",),
    ),
    "the arm by divergence stays when a belief changes": Mutant(
        "policies/fed_batch.py",
        "    me.winner_until = 0.0\n",
        "",
        ("test_fedbatch.py::test_the_kl_index_word_for_word",),
    ),
    "the tail forgets a release": Mutant(
        "rules/radius.py",
        "-largest * num_releases *",
        "-largest * (num_releases - 1) *",
        ("test_fedbatch.py::test_the_tail_is_the_best_chernoff_bound",),
    ),
}

BASELINES = {
    "UCB1 with 8 / n": Mutant(
        "rules/radius.py", "return sqrt(2.0 / n)", "return sqrt(8.0 / n)", ("test_paper.py::test_the_floor_is_ucb1",)
    ),
    "central variance with weights not squared": Mutant(
        "policies/central_ucb.py",
        "terms.weight * terms.weight\n",
        "terms.weight\n",
        ("test_paper.py::test_the_ceiling_is_ucb_on_everything",),
    ),
    "an episode ends early": Mutant(
        "policies/adap_ucb.py",
        "n + batch.batch_size(n, FIRST_EPISODE, GROWTH)",
        "n + max(1, batch.batch_size(n, FIRST_EPISODE, GROWTH) - 1)",
        ("test_baselines.py::test_adap_ucb_gossiped",),
    ),
    "coop-UCB2 adds rewards after mixing": Mutant(
        "engine/phases.py",
        "        network=page.network,\n",
        '        network="gossip" if page.network == "consensus" else page.network,\n',
        ("test_baselines.py::test_coop_ucb2",),
    ),
    "GSE does not tell what it dropped": Mutant(
        "policies/gse.py",
        "                if one.live[k] != other.live[k]:\n",
        "                if False:\n",
        ("test_baselines.py::test_gse_drops_what_neighbours_dropped",),
    ),
    "Fed1-UCB drops too early": Mutant(
        "rules/radius.py",
        "4.0 * log_horizon",
        "0.5 * log_horizon",
        ("test_baselines.py::test_fed1_ucb_keeps_an_arm_until_its_bound_is_beaten",),
    ),
    "Dist-UCB without the degree": Mutant(
        "rules/radius.py",
        "return sqrt(3.0 / (degree * n))",
        "return sqrt(3.0 / n)",
        ("test_baselines.py::test_dist_ucb_where_agents_lag",),
    ),
}

PRIVACY = {
    "half the noise": Mutant(
        "privacy/noise.py",
        "return measurement_of(epsilon)(",
        "return measurement_of(2.0 * epsilon)(",
        ("test_privacy.py::test_the_noise_is_discrete_laplace",),
    ),
    "OpenDP is not asked whether epsilon holds": Mutant(
        "privacy/noise.py",
        "if measurement.map(GRID) <= epsilon:",
        "if measurement.map(GRID) <= 1.001 * epsilon:",
        ("test_privacy.py::test_opendp_confirms_the_epsilon",),
    ),
    "a reward is not clamped before it is counted in steps": Mutant(
        "privacy/noise.py",
        'reward = clamp(finite_number("reward", reward), low, high)',
        'reward = finite_number("reward", reward)',
        ("test_privacy.py::test_every_reward_lies_on_the_grid",),
    ),
    "a reward is not rounded to the grid": Mutant(
        "privacy/noise.py",
        "return round(to_steps(reward, low, high))",
        "return to_steps(reward, low, high)",
        ("test_privacy.py::test_every_reward_lies_on_the_grid",),
    ),
    "the ledger records nothing": Mutant(
        "privacy/ledger.py",
        "        self._marks[arm, level] = last\n",
        "",
        ("test_privacy.py::test_no_interval_gets_a_second_draw",),
    ),
    "the ledger records a draw only once it has come": Mutant(
        "privacy/ledger.py",
        "        self._marks[arm, level] = last\n        (fresh,) = self._noise(self.epsilon_per_release, 1)\n",
        "        (fresh,) = self._noise(self.epsilon_per_release, 1)\n        self._marks[arm, level] = last\n",
        ("test_privacy.py::test_a_failed_draw_is_not_tried_again",),
    ),
    "a reward may lie in two releases": Mutant(
        "privacy/ledger.py",
        "if first <= mark:",
        "if first < mark:",
        ("test_privacy.py::test_no_interval_gets_a_second_draw",),
    ),
    "all levels share one mark": Mutant(
        "privacy/ledger.py",
        "return self._marks.get((arm, level), 0)",
        "return self._marks.get((arm, 0), 0)",
        ("test_privacy.py::test_levels_are_separate_accounts",),
    ),
    "the ledger forgets its marks at a restart": Mutant(
        "privacy/ledger.py",
        '            self._marks[arm, level] = whole_number("last", last, 1, MAX_PULL)\n',
        '            whole_number("last", last, 1, MAX_PULL)\n',
        ("test_privacy.py::test_a_ledger_comes_back_with_its_marks",),
    ),
    "the ledger charges for one level only": Mutant(
        "privacy/ledger.py",
        "return self.levels * self.epsilon_per_release",
        "return self.epsilon_per_release",
        ("test_privacy.py::test_what_a_reward_costs",),
    ),
    "noise may be a float": Mutant(
        "privacy/ledger.py",
        "if type(fresh) is not int:",
        "if False:",
        ("test_privacy.py::test_noise_must_be_whole_numbers",),
    ),
    "rows older than the last release are accepted": Mutant(
        "privacy/mechanism.py",
        "if mark > n or self.ledger.released_up_to(arm, level) >= first:",
        "if False:",
        ("test_privacy.py::test_a_row_that_is_older_than_the_last_release_is_refused",),
    ),
    "rows that forgot their last batch are accepted": Mutant(
        "privacy/mechanism.py",
        "if mark > n or self.ledger.released_up_to(arm, level) >= first:",
        "if mark > n:",
        ("test_site.py::test_rows_that_the_page_cannot_know_are_refused_with_the_reason",),
    ),
    "the tree takes one reward more than it pays for": Mutant(
        "privacy/mechanism.py",
        "        n = self.me.n[arm] + 1\n",
        "        n = self.me.n[arm]\n",
        ("test_privacy.py::test_the_tree_refuses_to_go_past_its_end",),
    ),
}

FLOW = {
    "the stamp does not grow": Mutant(
        "rules/flow.py",
        "(stamp[0] + 1, writer)",
        "(stamp[0], writer)",
        ("test_flow.py::test_without_faults_it_is_the_papers_average",),
    ),
    "the answer is not mirrored": Mutant(
        "rules/flow.py",
        "return held((mirrored(flow), stamp), writer, limits) if mine[1] < stamp else mine",
        "return held((flow, stamp), writer, limits) if mine[1] < stamp else mine",
        ("test_flow.py::test_without_faults_it_is_the_papers_average",),
    ),
    "an older answer is adopted": Mutant(
        "rules/flow.py",
        "if mine[1] < stamp else mine",
        "if stamp[0] > 0 else mine",
        ("test_flow.py::test_a_late_offer_changes_nothing",),
    ),
    "an older offer is averaged": Mutant(
        "rules/flow.py",
        "if stamp < mine[1]:",
        "if False:",
        ("test_flow.py::test_a_late_offer_changes_nothing",),
    ),
    "of two who write at once neither wins": Mutant(
        "rules/flow.py",
        "if mine[1] < stamp else mine",
        "if mine[1][0] < stamp[0] else mine",
        ("test_flow.py::test_both_write_at_once",),
    ),
    "an offer as old as its own copy wins": Mutant(
        "rules/flow.py",
        "if stamp < mine[1]:",
        "if stamp[0] < mine[1][0]:",
        ("test_flow.py::test_of_two_equal_versions_the_larger_name_is_newer",),
    ),
    "an exchange goes all the way to the other end": Mutant(
        "rules/flow.py",
        "(average(here[c], there[c]) - here[c])",
        "(there[c] - here[c])",
        ("test_flow.py::test_moved_lands_on_the_average",),
    ),
    "the flow of the link counts twice in its average": Mutant(
        "agent/core/site.py",
        "flow.answer(register, rest, offered,",
        "flow.answer(register, self.gossiped, offered,",
        ("test_site.py::test_a_clock_that_stands_behind_does_not_block_a_link",),
    ),
}

SITE = {
    "a reward counts twice": Mutant(
        "agent/core/decisions.py",
        "        if decision.rewarded:\n            return Step(True)\n",
        "",
        (REPEATED,),
    ),
    "a repeated reward is told from another": Mutant(
        "agent/core/decisions.py",
        "        if decision.rewarded:\n            return Step(True)\n",
        "        if decision.rewarded:\n            return Step(decision.reward in (None, reward))\n",
        (REPEATED,),
    ),
    "a raw reward is kept after it counts": Mutant(
        "agent/core/records.py",
        "return self._with(None, True, self.rewarded)",
        "return self._with(self.reward, True, self.rewarded)",
        (REPEATED,),
    ),
    "ids of decisions can be guessed": Mutant(
        "agent/core/decision_ids.py",
        "key=key, ",
        "",
        ("test_site.py::test_ids_cannot_be_guessed",),
    ),
    "every token has all rights": Mutant(
        "agent/http/access.py",
        "if right is not None and right not in rights:",
        "if False:",
        ("test_raw_rewards.py::test_a_role_may_do_this_and_nothing_else",),
    ),
    "a reward outside the range is taken": Mutant(
        "agent/core/decisions.py",
        "if not low <= reward <= high:",
        "if False:",
        ("test_site.py::test_a_bad_reward_changes_nothing",),
    ),
    "expiry takes back rewarded decisions": Mutant(
        "agent/core/decisions.py",
        "self._tried[decision.arm] -= decision.is_open",
        "self._tried[decision.arm] -= 1",
        (OLD_DECISIONS,),
    ),
    "pending decisions are forgotten at a restart": Mutant(
        "agent/core/player.py",
        "            self.me.tried[decision.arm] += decision.is_open\n",
        "            pass\n",
        (STORY,),
    ),
    "messages of an earlier life are averaged": Mutant(
        "agent/core/site.py",
        "if offer.epoch >= link.epoch:",
        "if True:",
        ("test_site.py::test_messages_from_before_a_lost_disk_are_not_heard",),
    ),
    "answers of an earlier life are adopted": Mutant(
        "agent/core/site.py",
        "if answer.epoch >= link.epoch and answer.to_epoch == self._life(link):",
        "if answer.to_epoch == self._life(link):",
        ("test_site.py::test_messages_from_before_a_lost_disk_are_not_heard",),
    ),
    "offers for an earlier life are averaged": Mutant(
        "agent/core/site.py",
        "if offer.to_epoch in (0, self._life(link)):",
        "if True:",
        ("test_site.py::test_messages_for_an_earlier_life_are_not_heard",),
    ),
    "answers to an earlier life are adopted": Mutant(
        "agent/core/site.py",
        "if answer.epoch >= link.epoch and answer.to_epoch == self._life(link):",
        "if answer.epoch >= link.epoch:",
        ("test_site.py::test_messages_for_an_earlier_life_are_not_heard",),
    ),
    "a site whose clock stands behind stays there": Mutant(
        "agent/core/site.py",
        "        return replace(link, own_epoch=message.to_epoch + 1)\n",
        "        return link\n",
        ("test_site.py::test_a_clock_that_stands_behind_does_not_block_a_link",),
    ),
    "other terms of the federation are ignored": Mutant(
        "agent/core/site.py",
        "if message.federation != self._digest:",
        "if False:",
        ("test_site.py::test_who_is_not_heard",),
    ),
    "a message for another site is heard": Mutant(
        "agent/core/site.py",
        "if message.receiver != self.name:",
        "if False:",
        ("test_site.py::test_who_is_not_heard",),
    ),
    "no bounds on what neighbours send": Mutant(
        "agent/core/site.py",
        "        self._bounds.check(message, self._stored.born, self._life(link))\n",
        "",
        ("test_agent_policies.py::test_what_no_honest_neighbour_says_is_refused",),
    ),
    "no bounds on epochs": Mutant(
        "agent/core/bounds.py",
        "    if epoch > most:\n",
        "    if False:\n",
        ("test_site.py::test_an_epoch_cannot_be_pushed_out_of_range",),
    ),
    "a neighbour that has left is still heard": Mutant(
        "agent/core/site.py",
        "if link is None or link.left:",
        "if link is None:",
        ("test_site.py::test_who_leaves_takes_its_flow_away",),
    ),
    "who leaves does not take its flow away": Mutant(
        "agent/core/site.py",
        "Link(neighbour, least, flow.empty(self._player.num_arms), left=True, ",
        "Link(neighbour, least, link.register, left=True, ",
        ("test_site.py::test_who_leaves_takes_its_flow_away",),
    ),
    "who comes back brings its old messages": Mutant(
        "agent/core/site.py",
        "least = min(link.epoch + 1, MAX_COUNT)",
        "least = link.epoch",
        ("test_site.py::test_who_comes_back_is_heard_its_old_messages_are_not",),
    ),
    "an exchange does not change what the site believes": Mutant(
        "agent/core/site.py",
        "        self._player.exchange(row)\n",
        "",
        ("test_site.py::test_an_exchange_changes_what_the_site_believes",),
    ),
    "a release does not change what the site believes": Mutant(
        "agent/core/decisions.py",
        "        self._look(*self._player.concerned(own))\n",
        "",
        ("test_site.py::test_an_arm_is_known_after_its_own_release",),
    ),
    "n~ does not spread with answers": Mutant(
        "agent/core/site.py",
        "            self._hear(answer)\n",
        "",
        ("test_agent_policies.py::test_n_max_spreads_with_exchanges_and_goes_with_its_site",),
    ),
    "a site without rewards counts as zero": Mutant(
        "agent/core/player.py",
        "float(self.me.n[k] > 0)",
        "1.0",
        ("test_agent_policies.py::test_a_site_without_a_reward_of_an_arm_does_not_count_as_zero",),
    ),
    "the low end of the range counts as a reward of zero": Mutant(
        "agent/core/player.py",
        "value = to_steps(gossiped[k], low, high, weight)",
        "value = to_steps(gossiped[k], 0.0, high - low, weight)",
        ("test_site.py::test_estimates_are_in_units_of_the_reward",),
    ),
    "a full tree is handed out while rewards are pending": Mutant(
        "agent/core/choice.py",
        "player.me.tried[k] < most]",
        "player.me.n[k] < most]",
        ("test_agent_policies.py::test_a_full_arm_is_not_handed_out_and_then_nothing_is",),
    ),
    "a file with more decisions than the horizon allows is opened": Mutant(
        "agent/core/player.py",
        "if most is not None and max(self.me.tried) > most:",
        "if False:",
        ("test_agent_policies.py::test_a_file_with_more_decisions_than_its_tree_has_room_for_is_refused",),
    ),
    "the last release of each level is not recorded": Mutant(
        "agent/core/player.py",
        "if interval is not None:",
        "if False:",
        ("test_site.py::test_a_release_is_among_the_records_of_its_reward",),
    ),
}

DISK = {
    "an event is acknowledged before it is on disk": Mutant(
        "agent/disk/durable_site.py",
        "        await written\n",
        "",
        ("test_durable_site.py::test_nothing_is_told_before_it_is_on_disk",),
    ),
    "a refusal is told before its reason is on disk": Mutant(
        "agent/disk/durable_site.py",
        "            await self._on_disk(())  # the reason of a refusal must survive a crash\n",
        "",
        ("test_durable_site.py::test_the_reason_of_a_refusal_is_on_disk",),
    ),
    "what is shown is not on disk": Mutant(
        "agent/disk/durable_site.py",
        "            await self._on_disk(())  # also the reason of a refusal must survive a crash\n",
        "            pass\n",
        ("test_durable_site.py::test_what_is_shown_is_on_disk",),
    ),
    "memory survives a disk that failed": Mutant(
        "agent/disk/durable_site.py",
        "        self._forget()\n        self.problem = _told(error)\n",
        "        self.problem = _told(error)\n",
        ("test_durable_site.py::test_what_a_failed_disk_has_not_taken_has_not_happened",),
    ),
    "half an event stays in memory": Mutant(
        "agent/disk/durable_site.py",
        "            self._forget()  # half of the event may be in memory\n",
        "",
        ("test_durable_site.py::test_an_event_that_breaks_leaves_nothing_behind",),
    ),
    "who reads makes all others wait": Mutant(
        "agent/disk/durable_site.py",
        "            await self._on_disk(())  # also the reason of a refusal must survive a crash\n",
        "            self._commit()\n",
        ("test_durable_site.py::test_who_reads_waits_for_the_disk_and_makes_nobody_wait",),
    ),
    "who closes does not wait for the thread": Mutant(
        "agent/disk/durable_site.py",
        "        self._join()\n        if self._waiting:\n",
        "        if self._waiting:\n",
        ("test_durable_site.py::test_it_closes_when_the_thread_has_written",),
    ),
    "who erases makes all others wait": Mutant(
        "agent/disk/durable_site.py",
        "if self._journal is None or self._pace <= SLOW:",
        "if True:",
        ("test_durable_site.py::test_others_go_on_while_a_slow_disk_is_erased",),
    ),
    "an erasure that fails undoes events": Mutant(
        "agent/disk/durable_site.py",
        "        if error is not None and erases:",
        "        if False:",
        ("test_durable_site.py::test_others_go_on_while_a_slow_disk_is_erased",),
    ),
    "events after a write that failed have happened": Mutant(
        "agent/disk/durable_site.py",
        "            self._fail([*group, *self._gathered()], error)",
        "            self._fail(group, error)",
        ("test_durable_site.py::test_what_ran_after_a_write_that_failed_has_not_happened",),
    ),
    "a refusal does not wait for the thread": Mutant(
        "agent/disk/durable_site.py",
        "if not records and not self._waiting and self._writing is None:",
        "if not records and not self._waiting:",
        ("test_durable_site.py::test_a_refusal_waits_for_what_it_tells_of",),
    ),
    "a slow disk stops the loop": Mutant(
        "agent/disk/durable_site.py",
        "        if self._pace <= SLOW:\n",
        "        if True:\n",
        ("test_durable_site.py::test_the_disk_decides_where_it_is_written",),
    ),
    "callers are told when the thread begins to write": Mutant(
        "agent/disk/durable_site.py",
        "        self._writing = _Writing(group, arms, done, erases)\n",
        "        self._writing = _Writing(group, arms, done, erases)\n        _resume(group)\n",
        ("test_durable_site.py::test_a_hundred_callers_share_one_commit",),
    ),
    "records of an event are written one by one": Mutant(
        "agent/disk/journal.py",
        '            self._file.execute("BEGIN IMMEDIATE")\n'
        "            try:\n"
        "                if self._is_accepted:\n"
        "                    self._identify()\n"
        "                self._rows.write(records)\n"
        '                self._file.execute("COMMIT")\n',
        "            try:\n                self._rows.write(records)\n",
        ("test_site.py::test_an_interval_is_written_once",),
    ),
    "a commit does not wait for the disk": Mutant(
        "agent/disk/journal.py",
        '"synchronous=FULL"',
        '"synchronous=NORMAL"',
        ("test_site.py::test_a_commit_waits_for_the_disk",),
    ),
    "two processes may write one file": Mutant(
        "agent/disk/journal.py",
        '"locking_mode=EXCLUSIVE"',
        '"locking_mode=NORMAL"',
        ("test_site.py::test_a_file_that_does_not_fit_is_refused_with_the_reason",),
    ),
    "an interval may be released again on disk": Mutant(
        "agent/disk/rows.py",
        '    "INSERT INTO released SELECT ?1, ?2, ?3 WHERE ?3 > coalesce("\n'
        '    "(SELECT last FROM released WHERE arm = ?1 AND level = ?2), 0) "\n'
        '    "ON CONFLICT (arm, level) DO UPDATE SET last = excluded.last"\n',
        '    "INSERT OR REPLACE INTO released VALUES (?, ?, ?)"\n',
        ("test_site.py::test_an_interval_is_written_once",),
    ),
    "the file of other terms is opened": Mutant(
        "agent/disk/examination.py",
        "if its_digest != terms.digest():",
        "if False:",
        ("test_site.py::test_a_file_that_does_not_fit_is_refused_with_the_reason",),
    ),
    "the file of another site is opened": Mutant(
        "agent/disk/examination.py",
        "if its_name != name:",
        "if False:",
        ("test_site.py::test_a_file_that_does_not_fit_is_refused_with_the_reason",),
    ),
    "rewards of known decisions are not written": Mutant(
        "agent/disk/rows.py",
        "late = ?, rewarded = ?, cancelled",
        "late = ?, rewarded = 0 * ?, cancelled",
        (ON_FILE,),
    ),
    "a decision is taken to have changed as it usually does": Mutant(
        "agent/disk/rows.py",
        "checksum = ? WHERE id = ? AND checksum = ?",
        "checksum = ? WHERE id = ? AND checksum != -?",
        ("test_damaged_files.py::test_a_decision_may_change_in_any_order_and_the_sum_fits",),
    ),
    "what is not on disk is told by an event that changes nothing": Mutant(
        "agent/disk/durable_site.py",
        "if not records and not self._waiting and self._writing is None:",
        "if not records:",
        ("test_durable_site.py::test_an_event_that_changes_nothing_waits_for_those_that_it_may_tell_of",),
    ),
    "expired decisions stay on disk": Mutant(
        "agent/disk/rows.py",
        '"DELETE FROM decision WHERE id = ? RETURNING',
        '"DELETE FROM decision WHERE id = ? AND NOT played RETURNING',
        (ON_FILE,),
    ),
    "deleted content stays in the file": Mutant(
        "agent/disk/journal.py",
        '"secure_delete=ON"',
        '"secure_delete=OFF"',
        ("test_site.py::test_a_commit_waits_for_the_disk",),
    ),
    "the log keeps what was overwritten": Mutant(
        "agent/disk/journal.py",
        "wal_checkpoint(TRUNCATE)",
        "wal_checkpoint(PASSIVE)",
        (ERASED,),
    ),
    "the place of a reward is not overwritten": Mutant(
        "agent/disk/raw_values.py",
        "        self._write(place, _FREE)\n",
        "",
        (ERASED,),
    ),
    "a migrated file is not written anew": Mutant(
        "agent/disk/journal.py",
        '                self._file.execute("VACUUM")\n',
        "",
        ("test_raw_rewards.py::test_a_migrated_file_holds_no_old_reward",),
    ),
    "a running agent erases nothing": Mutant(
        "agent/process/runtime.py",
        "                await self.site.erase()\n",
        "",
        ("test_raw_rewards.py::test_a_running_agent_erases_by_itself",),
    ),
    "a neighbour that has left is back after a restart": Mutant(
        "agent/disk/rows.py",
        '"has_left = excluded.has_left, ',
        '"has_left = 0, ',
        (ON_FILE,),
    ),
    "rows that make no sense are loaded": Mutant(
        "agent/disk/rows.py",
        "        terms.mechanism(num_arms=num_arms).restore(stored.known, stored.released)",
        "        terms.mechanism()",
        ("test_site.py::test_rows_that_the_page_cannot_know_are_refused_with_the_reason",),
    ),
    "a migration drops the batch that is not full": Mutant(
        "agent/disk/migration.py",
        "        me.n[arm] += count\n        me.total[arm] = total\n",
        "        pass\n",
        (MIGRATED,),
    ),
    "a migration forgets what was released": Mutant(
        "agent/disk/migration.py",
        "return [Released(arm, 0, last) for arm, last in last_of.items()]",
        "return []",
        ("test_schema2.py::test_what_was_released_before_is_not_drawn_again", MIGRATED),
    ),
    "a migration counts the noise of a tree twice": Mutant(
        "agent/disk/migration.py", "noise(pulls) - noise(before)", "noise(pulls)", (MIGRATED,)
    ),
    "a file that lacks commits is opened": Mutant(
        "agent/disk/commit_counter.py",
        "if self.commits > commits:",
        "if False:",
        ("test_damaged_files.py::TestTheLog",),
    ),
    "commits are not counted": Mutant(
        "agent/disk/journal.py",
        "            self._counter.count(self._rows.agent.commits)\n",
        "",
        ("test_damaged_files.py::TestTheLog",),
    ),
    "a file without its counter is opened": Mutant(
        "agent/disk/commit_counter.py",
        "        if self.commits is None:\n            state",
        "        if self.commits is None:\n            return\n            state",
        ("test_damaged_files.py::TestTheCounter",),
    ),
    "rows are loaded whatever their checksum": Mutant(
        "agent/disk/rows.py",
        "if self._sums.total(self._fixed, changing) != self._sum:",
        "if False:",
        ("test_damaged_files.py::test_rows_changed_by_hand_are_refused_with_words",),
    ),
    "decisions are loaded whatever their checksum": Mutant(
        "agent/disk/rows.py",
        "            if self.checksum_of(*row) != found:\n",
        "            if False:\n",
        ("test_damaged_files.py::test_rows_changed_by_hand_are_refused_with_words",),
    ),
    "others may open the state": Mutant(
        "agent/disk/state_files.py",
        "    if mode & (stat.S_IRWXG | stat.S_IRWXO):\n",
        "    if False:\n",
        ("test_damaged_files.py::TestAFile",),
    ),
    "the state may be behind a symbolic link": Mutant(
        "agent/disk/state_files.py",
        "            found = file.lstat()\n",
        "            found = file.stat()\n",
        ("test_damaged_files.py::TestAFile",),
    ),
    "writes to a file that was removed are acknowledged": Mutant(
        "agent/disk/journal.py",
        "                self._place.check()\n",
        "                pass\n",
        ("test_damaged_files.py::test_nothing_is_acknowledged_once_the_file_is_gone",),
    ),
    "an old log is written to the file that refuses it": Mutant(
        "agent/disk/journal.py",
        "            if has_log(self._path):",
        "            if False:",
        ("test_damaged_files.py::TestTheLog",),
    ),
    "a new file appears before its counter": Mutant(
        "agent/disk/journal.py",
        "                self._counter.make(token_bytes(IDENTITY_SIZE), replace=False)"
        "  # first: a file without one is refused\n"
        "            write_secret(self._path, make_file(name, terms, epoch, self._counter.identity))\n",
        "                self._counter.identity = token_bytes(IDENTITY_SIZE)\n"
        "            write_secret(self._path, make_file(name, terms, epoch, self._counter.identity))\n"
        "            self._counter.make(self._counter.identity, replace=True)\n",
        ("test_damaged_files.py::test_a_crash_while_a_file_is_made_needs_no_human",),
    ),
    "others may read a secret file": Mutant(
        "agent/disk/secret_files.py",
        "if secret and mode & (stat.S_IRWXG | stat.S_IRWXO):",
        "if False:",
        ("test_certs.py",),
    ),
}

LATE = {
    "batches by order of arrival": Mutant(
        "agent/core/decisions.py",
        "            due = self._slots.take_due(now, MAX_SETTLED)\n        return",
        "            self._slots._open[decision.arm].remove(decision.id)\n            due = [decision]\n        return",
        (IN_ORDER,),
    ),
    "a reward after its window counts": Mutant(
        "agent/core/decisions.py",
        "if decision.played or self._slots.is_over(decision, now):",
        "if decision.played:",
        ("test_late_rewards.py::test_a_reward_is_late_from_the_end_of_its_window_even_before_it_is_settled",),
    ),
    "a reward counts when it comes, in spite of a window": Mutant(
        "agent/core/slots.py",
        "return self.is_over(decision, now) if self._window else decision.reward is not None",
        "return decision.reward is not None or self.is_over(decision, now)",
        (AT_ITS_END,),
    ),
    "a window ends a moment too late": Mutant(
        "agent/core/slots.py",
        "return 0.0 < self._window <= now - decision.at",
        "return 0.0 < self._window < now - decision.at",
        (AT_ITS_END,),
    ),
    "a missing reward does not count": Mutant(
        "agent/core/decisions.py",
        "((it.arm, missing if it.reward is None else it.reward) for it in (*gone, *due))",
        "((it.arm, it.reward) for it in (*gone, *due) if it.reward is not None)",
        (DEFAULT,),
    ),
    "a missing reward counts as the lowest, whatever was declared": Mutant(
        "agent/core/decisions.py", "missing = self.terms.missing_reward", "missing = self.terms.low", (DEFAULT,)
    ),
    "a late reward is counted as late again and again": Mutant(
        "agent/core/decisions.py", "if decision.late:", "if False:", (DEFAULT,)
    ),
    "rewards that wait lose their slot at a restart": Mutant(
        "agent/core/slots.py",
        "if decision.is_open and decision.number > by_arrival:",
        "if decision.reward is None and decision.is_open and decision.number > by_arrival:",
        ("test_late_rewards.py::test_a_restart_changes_no_release",),
    ),
    "a decision is forgotten before its window ends": Mutant(
        "agent/core/decisions.py",
        "if is_held or window or not self._slots.is_next(decision):",
        "if is_held or not self._slots.is_next(decision):",
        (EXPIRED_LATE,),
    ),
    "a decision is as old as itself, not as the end of its window": Mutant(
        "agent/core/decisions.py",
        "is_old = decision.at + window < before",
        "is_old = decision.at < before",
        (EXPIRED_LATE,),
    ),
    "a site's clock goes back": Mutant(
        "agent/core/decisions.py",
        "self._clock = self._clock, max(self._clock, finite_number(",
        "self._clock = self._clock, max(0.0, finite_number(",
        (SET_BACK,),
    ),
    "a site's clock goes back at a restart": Mutant(
        "agent/core/decisions.py",
        "return self._played(len(due), due, *times)",
        "return self._played(len(due), due)",
        (SET_BACK,),
    ),
    "an agent's clock goes back": Mutant(
        "agent/process/clock.py", "return at + max(ahead, 0.0), None", "return at + ahead, None", (JUMPS,)
    ),
    "an agent's clock does not go on from its file's": Mutant(
        "agent/process/clock.py", "if at > self.peek():", "if False:", (JUMPS,)
    ),
    "a file keeps the time of a late reward": Mutant(
        "agent/core/decisions.py",
        "replace(self._stored.times, late=self.late + 1)",
        "Times(now, self.late + 1)",
        (WHEN_THEY_COME,),
    ),
    "a reward settles what is due": Mutant(
        "agent/process/runtime.py",
        "self.site.take(lambda site: site.report(",
        "self.site.do(lambda site: site.report(",
        (WHEN_THEY_COME,),
    ),
    "a reward moves the clock": Mutant(
        "agent/process/runtime.py",
        "site.report(decision_id, reward, self._clock.peek())",
        "site.report(decision_id, reward, self._clock.now())",
        (WHEN_THEY_COME,),
    ),
    "a decision does not wait for what is due": Mutant(
        "agent/disk/durable_site.py",
        "        while self._loaded().is_due(now):\n",
        "        while False:\n",
        ("test_late_clocks.py::test_what_is_due_counts_before_anything_leaves",),
    ),
    "old decisions take slots among new ones": Mutant(
        "agent/disk/migration.py", 'by_arrival="decisions"', 'by_arrival="0"', (OLD_DECISIONS,)
    ),
}

WORD_FOR_WORD = "test_patients.py::test_the_simulator_is_the_algorithm_word_for_word"
LIVE_WORD_FOR_WORD = "test_patients.py::test_live_sites_are_the_algorithm_word_for_word"
BY_RATE = "test_patients.py::test_in_the_simulator_a_site_weighs_as_many_patients_as_it_had_by_its_last_release"
HALF_THE_WEIGHT = (
    "test_patients.py::"
    "test_an_arm_with_less_than_half_the_weight_of_the_best_known_is_unknown_unless_it_was_released_here"
)
PATIENTS = {
    "an arm counts as known to all with the first release of it": Mutant(
        "rules/gossip.py", "releases > 0 or weight >= HALF * most", "True", (HALF_THE_WEIGHT,)
    ),
    "a site's share of the patients is taken for all of them": Mutant(
        "rules/gossip.py", "max(min(own / (num_agents * weight), 1.0), LEAST_SHARE)", "1.0", (WORD_FOR_WORD,)
    ),
    "first pulls count as patients": Mutant(
        "rules/gossip.py", "decided += tried[k] - 1", "decided += tried[k]", (LIVE_WORD_FOR_WORD,)
    ),
    "a new weight is not told of arms that were released before": Mutant(
        "engine/phases.py",
        "published(me, fixed, np.uint64(k)), before[k])",
        "before[k], before[k])",
        (BY_RATE,),
    ),
    "a weight is not measured again": Mutant(
        "policies/fed_batch.py",
        "    if terms.by_rate:\n        me.share",
        "    if me.share == 0.0:\n        me.share",
        (BY_RATE,),
    ),
    "a live site's weight is not measured": Mutant(
        "agent/core/player.py", "if released and self.page.reweigh is not None:", "if False:", (LIVE_WORD_FOR_WORD,)
    ),
    "arms are compared before all are seen": Mutant(
        "agent/core/player.py",
        "            for k in arms:  # only now: a page may compare arms\n",
        "            for k in arms[:1]:\n",
        (LIVE_WORD_FOR_WORD,),
    ),
    "a busy first hour counts for years": Mutant(
        "agent/core/player.py",
        "max(elapsed, LEAST_ELAPSED,",
        "max(elapsed, 1.0,",
        ("test_patients.py::test_a_burst_on_the_first_day_counts_as_a_day",),
    ),
    "a restart forgets the weight": Mutant(
        "policies/fed_batch.py",
        "    share=Number,",
        "    share=Number.passing,",
        ("test_patients.py::test_a_restart_keeps_the_weight",),
    ),
    "a federation that counts sites has the terms of one that counts patients": Mutant(
        "agent/core/federation.py",
        'if self.counted == "sites":',
        "if True:",
        ("test_patients.py::test_sites_that_count_differently_are_of_different_federations",),
    ),
    "an older standing replaces a newer one": Mutant(
        "agent/core/standings.py",
        "                if it.epoch < old.epoch or (it.epoch == old.epoch and it.version <= old.version):\n",
        "                if False:\n",
        ("test_patients.py::test_the_newest_standing_counts_and_nobody_tells_a_site_its_own",),
    ),
    "a site that all others resemble is named": Mutant(
        "agent/core/holdout.py",
        "if 0.0 < SETTLED**2 * rest <= lead**2 < SETTLED**2 * total:",
        "if lead**2 < SETTLED**2 * total:",
        ("test_patients.py::test_the_site_that_alone_leaves_the_answer_open_is_named",),
    ),
}

D = "test_agent_doors.py::"
DOORS = {
    "whoever speaks must make room for the silent": Mutant(
        "agent/gossip/front.py",
        "    return waiting.counted or not waiting.spoke\n",
        "    return True\n",
        (f"{D}test_the_oldest_silent_one_makes_room",),
    ),
    "strangers have no allowance": Mutant(
        "agent/gossip/front.py",
        "        if len(crowd) < PER_ADDRESS:\n            if self._count < IN_ALL:\n",
        "        if True:\n            if True:\n",
        (f"{D}test_the_oldest_silent_one_makes_room",),
    ),
    "a handshake has no deadline": Mutant(
        "agent/gossip/front.py",
        "loop.call_later(DEADLINE, ",
        "loop.call_later(1e6, ",
        (f"{D}test_a_handshake_has_a_deadline",),
    ),
    "whoever the CA knows gets in": Mutant(
        "agent/gossip/front.py",
        "if not self._admits(who.name):",
        "if False:",
        (f"{D}test_only_neighbours_get_in",),
    ),
    "a name ends at a NUL byte": Mutant(
        "agent/gossip/identity.py",
        "return site_name(names[0].value)",
        'return names[0].value.partition("\\0")[0]',
        (f"{D}test_only_neighbours_get_in",),
    ),
    "we talk to whoever answers": Mutant(
        "agent/gossip/dialled.py",
        "if who.name != self._neighbour:",
        "if False:",
        (f"{D}test_only_the_neighbour_that_we_mean_is_called",),
    ),
    "a neighbour may have any number of connections": Mutant(
        "agent/gossip/transport.py",
        "        while self.full:\n",
        "        while False:\n",
        (f"{D}test_a_further_connection_of_a_neighbour_replaces_its_oldest",),
    ),
    "one who has left stays connected": Mutant(
        "agent/gossip/transport.py",
        "for name in list(self._rooms) if not self._admits(name)))",
        "for name in list(self._rooms) if False))",
        (f"{D}test_one_who_is_no_neighbour_any_more_is_disconnected",),
    ),
    "a connection outlives its certificate": Mutant(
        "agent/gossip/tunnel.py",
        "call_later(max(0.0, left), self.close)",
        "call_later(1e6, self.close)",
        (f"{D}test_a_connection_ends_with_its_certificate",),
    ),
    "the last of two headers wins": Mutant(
        "agent/http/access.py",
        "                if name in found:\n",
        "                if False:\n",
        ("test_api.py::test_a_header_that_stands_twice_is_400",),
    ),
    "the last of two keys wins": Mutant(
        "agent/strict_json.py",
        "if key in found:",
        "if False:",
        ("test_api.py::test_a_key_that_stands_twice_is_422",),
    ),
    "a pipe is read": Mutant(
        "regular_files.py",
        "if not stat.S_ISREG(seen.st_mode):",
        "if False:",
        ("test_config.py::test_only_regular_files_are_read",),
    ),
    "a request is signed for the name in it": Mutant(
        "agent/gossip/certificates.py", "if requested != name:", "if False:", ("test_certs.py",)
    ),
}

CLAMPED = "test_agent_policies.py::test_numbers_of_any_size_are_clamped_to_what_a_link_may_carry"
CLAIMS = "test_liars.py::test_counts_beyond_what_time_allows_are_capped_and_said"
JUMPED = "test_liars.py::test_numbers_that_jump_without_a_release_are_seen"
AWAY = "test_liars.py::test_an_honest_neighbour_that_was_away_is_not_suspected"
LIARS = {
    "invented sites make people surer": Mutant(
        "agent/core/believed_sites.py",
        "    return num_agents if most_sites is None else min(num_agents, most_sites)\n",
        "    return num_agents\n",
        (BELIEVED + "sites]",),
    ),
    "a bound moves estimates": Mutant(
        "agent/core/site_view.py",
        "        player.count(num_agents, self._standings",
        "        player.count(self._standings.believed, self._standings",
        (BELIEVED + "safe]",),
    ),
    "one that joins is told to know nothing": Mutant(
        "agent/core/unequal_sites.py",
        "        if it.own.released[k] * it.own.weight == 0 and",
        "        if it.own.weight == 0 and",
        ("test_sites_come_and_go.py::test_its_uncertainty_is_that_of_the_networks_mean",),
    ),
    "nobody hears of sites that are not believed": Mutant(
        "agent/core/standings.py",
        "        is_more = self.num_agents > self.believed and tellers\n",
        "        is_more = False\n",
        (BELIEVED + "sites]",),
    ),
    "invented sites hide those that know little": Mutant(
        "rules/belief.py",
        "key=lambda i: ratio * parts[i][0] - parts[i][1])",
        "key=lambda i: parts[i][1])",
        ("test_liars.py::test_invented_sites_hide_none_that_knows_little",),
    ),
    "a changed bound waits for a restart": Mutant(
        "agent/process/runtime.py",
        "            await self.site.do(lambda site: site.limit_sites(config.most_sites))\n",
        "",
        ("test_agent_tasks.py::test_house_keeping_outlives_a_mistake",),
    ),
    "an answer is not clamped": Mutant(
        "rules/flow.py",
        "    return clamped(moved(flow, gossiped(rest, [flow]), there), limits), (stamp[0] + 1, writer)\n",
        "    return moved(flow, gossiped(rest, [flow]), there), (stamp[0] + 1, writer)\n",
        (CLAMPED,),
    ),
    "what an answer brings is not clamped": Mutant(
        "rules/flow.py",
        "    return register if within is flow else (within, (version + 1, writer))\n",
        "    return register\n",
        ("test_liars.py::test_an_answer_beyond_the_limits_is_written_anew",),
    ),
    "a range far from zero is bounded loosely": Mutant(
        "rules/flow.py",
        "    return value - low * weight\n",
        "    return value\n",
        ("test_liars.py::test_a_range_far_from_zero_is_bounded_as_tightly",),
    ),
    "a weight that cannot be makes an arm unknown": Mutant(
        "agent/core/player.py",
        "            if weight <= 0.0 or self._lost[k] > MIXED * self.num_agents:\n",
        "            if False:\n",
        ("test_liars.py::test_negative_weights_make_no_arm_unknown",),
    ),
    "counts are not capped": Mutant(
        "agent/core/standings.py",
        "heard(n, min(other, most)) for n, other",
        "heard(n, other) for n, other",
        (CLAIMS,),
    ),
    "the counts of a site that has left stay": Mutant(
        "agent/core/standings.py",
        "for it in self._heard.values() if it.standing.weight > 0.0]\n            self._most",
        "for it in self._heard.values()]\n            self._most",
        (CLAIMS,),
    ),
    "a site goes as far with its version as a liar says": Mutant(
        "agent/core/standings.py",
        "            if _is_believed(newer) and has_room:",
        "            if _is_believed(newer):",
        ("test_liars.py::test_one_forged_message_puts_nobody_out_for_good",),
    ),
    "a version that nobody exceeds is believed": Mutant(
        "agent/core/standings.py",
        "it.version <= MAX_N // 2 + (it.weight == 0.0)",
        "it.version <= MAX_N // 2 + 1",
        ("test_liars.py::test_a_version_that_nobody_exceeds_is_not_believed",),
    ),
    "a forged standing is not answered": Mutant(
        "agent/core/standings.py",
        "                self._stated = newer  # else",
        "                pass  # else",
        ("test_patients.py::test_a_site_that_hears_what_it_has_not_said_says_something_newer",),
    ),
    "invented sites take everybody's room": Mutant(
        "agent/core/standings.py",
        "            self._make_room(teller)\n",
        "            if len(self._heard) >= self._most_agents - 1:\n                return\n",
        ("test_patients.py::test_invented_sites_take_the_room_of_who_tells_of_them",),
    ),
    "a stale standing is heard again": Mutant(
        "agent/core/standings.py",
        "            if teller != told.site and self._was_dropped(told):\n",
        "            if False:\n",
        ("test_patients.py::test_what_a_site_has_not_renewed_is_dropped_and_not_heard_again",),
    ),
    "nobody looks for jumps": Mutant(
        "agent/core/link_watch.py",
        "        if moved > max(JUMP * held, LEAST * self._bounds.weight):\n",
        "        if False:\n",
        (JUMPED,),
    ),
    "who comes back after a silence is suspected": Mutant(
        "agent/core/quiet_arms.py",
        "            if released > silent_since - MIXED * num_agents:\n",
        "            if False:\n",
        (AWAY,),
    ),
    "a restarted neighbour is silent until it knows its version": Mutant(
        "agent/core/standings.py",
        "                    self._take_old(teller, it, known)\n",
        "",
        (AWAY,),
    ),
    "silence alone lets numbers jump": Mutant(
        "agent/core/quiet_arms.py",
        "            if released > silent_since - MIXED * num_agents:\n",
        "            if True:\n",
        ("test_liars.py::test_a_liar_that_was_silent_on_purpose_is_seen_if_nobody_has_released",),
    ),
    "a site may be as fast as it likes": Mutant(
        "agent/core/player.py",
        "self.decided / self._federation.largest_rate",
        "0.0",
        ("test_liars.py::test_the_largest_rate_is_a_term_where_it_matters",),
    ),
}

OC = "test_old_copies.py::"
OLD_COPIES = {
    "any seal is taken for genuine": Mutant(
        "agent/core/seals.py",
        "    return seal.tag == _tag(key, neighbour, seal.numbers)\n",
        "    return True\n",
        (f"{OC}test_a_neighbour_can_forge_no_seal",),
    ),
    "a seal for one neighbour is one for all": Mutant(
        "agent/core/seals.py",
        "content = _NUMBERS.pack(*numbers) + neighbour.encode()",
        "content = _NUMBERS.pack(*numbers)",
        (f"{OC}test_a_seal_for_another_neighbour_proves_nothing",),
    ),
    "a file is trusted at the start": Mutant(
        "agent/core/presence.py",
        'Doubt("unconfirmed") if run else None',
        "None",
        (f"{OC}test_a_start_releases_nothing_until_neighbours_have_confirmed",),
    ),
    "a neighbour that lost its disk confirms": Mutant(
        "agent/core/presence.py",
        "if self._is_known(message.most, key, by) or not self._has_spoken:",
        "if True:",
        (f"{OC}test_a_neighbour_that_lost_its_disk_cannot_confirm",),
    ),
    "an answer to an earlier process confirms": Mutant(
        "agent/core/presence.py",
        " and message.to_run == self.run:\n",
        ":\n",
        (f"{OC}test_an_answer_to_an_earlier_process_confirms_nothing",),
    ),
    "rewards are played while nothing may be released": Mutant(
        "agent/core/decisions.py",
        "elif self.terms.reward_window == 0.0 and self.doubt is None:",
        "elif self.terms.reward_window == 0.0:",
        (f"{OC}test_an_old_file_is_noticed_and_releases_nothing",),
    ),
    "a new life keeps the open batch": Mutant(
        "agent/core/restore.py",
        'else {**fields, "n": fields["released"], "total": 0}',
        "else fields",
        (f"{OC}test_restore_drops_what_may_have_been_released_and_keeps_the_rest",),
    ),
    "ids do not tell the process": Mutant(
        "agent/core/decision_ids.py",
        'struct.pack("<qqqd", run, epoch, number, at)',
        'struct.pack("<qqqd", 0, epoch, number, at)',
        (f"{OC}test_ids_are_never_used_again",),
    ),
    "an old file passes for a newer life": Mutant(
        "agent/core/site.py",
        "        if self.run and most is not None and is_genuine(most, self._stored.key, link.neighbour):\n",
        "        if False:\n",
        (f"{OC}test_a_file_from_before_a_restored_life_is_old",),
    ),
    "a lost new life is believed": Mutant(
        "agent/core/presence.py",
        "            if stored.life.epoch < epoch:",
        "            if False:",
        (f"{OC}test_a_new_life_that_could_not_be_written_has_not_begun",),
    ),
    "late messages are taken for a living process": Mutant(
        "agent/core/site.py",
        "            if seal.other != told.run:",
        "            if False:",
        (f"{OC}test_messages_of_a_dead_process_that_come_late_prove_nothing",),
    ),
    "exchanges that average nothing count": Mutant(
        "agent/gossip/neighbour_status.py",
        "        if heard:\n            self.unheard_in_turn = 0\n",
        "        if True:\n            self.unheard_in_turn = 0\n",
        ("test_neighbour_status.py::test_exchanges_that_average_nothing_are_not_counted",),
    ),
}


EX = "test_extras.py::"
EXTRAS = {
    "a missing extra is not noticed": Mutant(
        "extras.py",
        "    if absent:\n",
        "    if False:\n",
        (f"{EX}test_a_package_that_is_missing_is_named",),
    ),
    "packages count as installed": Mutant(
        "extras.py",
        "        return find_spec(name) is not None",
        "        return True",
        (f"{EX}test_a_package_that_is_missing_is_named",),
    ),
    "dir shows what cannot be loaded": Mutant(
        "__init__.py",
        'absent = _SIMULATOR if missing("sim") else ()',
        "absent = ()",
        (f"{EX}test_the_base_says_what_to_install",),
    ),
    "a command does not say what it needs": Mutant(
        "cli/commands.py",
        '    needs("fedbandit show", "sim")\n',
        "",
        (f"{EX}test_the_base_says_what_to_install",),
    ),
    "a live site loads NumPy": Mutant(
        "agent/core/decision_ids.py",
        "import struct\n",
        "import struct\n\nimport numpy as np\n",
        ("test_laws.py::test_a_site_loads_nothing_of_the_simulator_and_the_base_nothing_of_a_site",),
    ),
    "import fedbandit loads more": Mutant(
        "__init__.py",
        "TYPE_CHECKING = False  #",
        "from typing import TYPE_CHECKING  #",
        (f"{EX}test_import_fedbandit_loads_nothing_else",),
    ),
}


KEYS = "test_requests.py::test_a_key_gets_the_same_decisions_again_also_after_a_restart"
OTHER_REQUEST = "test_requests.py::test_a_key_belongs_to_its_request"
SUBJECTS = "test_requests.py::test_a_subject_keeps_its_arm_while_it_is_remembered"
CANCELLED = "test_requests.py::test_a_cancelled_decision_does_not_count"
USED = "test_requests.py::test_a_decision_that_was_used_cannot_be_cancelled"
JUMP = "test_decision_paths.py::test_a_clock_that_jumps_ahead_by_a_month_for_four_seconds_forgets_nothing"
SCHEMA_5 = "test_schema5.py::test_a_migrated_site_shows_what_it_showed_and_goes_on"
LOG = "test_decision_paths.py::test_the_log"

REQUESTS = {
    "a key is forgotten at a restart": Mutant(
        "agent/core/site_view.py",
        "RequestIndex(self._stored.decisions.values())",
        "RequestIndex(())",
        (KEYS, SUBJECTS),
    ),
    "a key is not stored": Mutant(
        "agent/core/decisions.py",
        "propensity, key, subject, eligible))",
        'propensity, b"", subject, eligible))',
        (KEYS,),
    ),
    "a key answers any request": Mutant(
        "agent/core/decisions.py", "if any(it.key != key for it in found):", "if False:", (OTHER_REQUEST,)
    ),
    "a key stands for requests that differ in the excluded arms": Mutant(
        "agent/core/requests.py",
        "repr((request.eligible, request.exclude, request.subject, request.count))",
        "repr((request.eligible, request.subject, request.count))",
        (OTHER_REQUEST,),
    ),
    "a key outlives its decisions": Mutant(
        "agent/core/decisions.py",
        "            self._requests.drop(decision)\n",
        "            pass\n",
        ("test_requests.py::test_a_key_is_forgotten_with_its_decisions",),
    ),
    "some of a key's decisions are told for all": Mutant(
        "agent/core/decisions.py",
        "if found and len(found) < request.count:",
        "if False:",
        ("test_requests.py::test_a_key_is_forgotten_with_its_decisions",),
    ),
    "a key gives a stopped arm": Mutant(
        "agent/core/decisions.py",
        "if it.arm in self.stopped and not it.rewarded:",
        "if False:",
        ("test_requests.py::test_a_key_whose_arm_was_stopped_is_refused_until_it_is_rewarded",),
    ),
    "a subject is stored as it is": Mutant(
        "agent/core/requests.py",
        'return _hash(secret, b"subject", subject.encode(), _SUBJECT_SIZE)',
        "return subject.encode()",
        ("test_requests.py::test_only_hashes_are_stored_and_two_sites_have_different_ones",),
    ),
    "hashes are the same at every site": Mutant(
        "agent/core/requests.py",
        "digest_size=size, key=secret, person=person",
        "digest_size=size, person=person",
        ("test_requests.py::test_only_hashes_are_stored_and_two_sites_have_different_ones",),
    ),
    "a subject keeps the arm of its first decision": Mutant(
        "agent/core/requests.py",
        "self._subjects[decision.subject] = decision.id",
        "self._subjects.setdefault(decision.subject, decision.id)",
        (SUBJECTS,),
    ),
    "a subject keeps an arm that it may not have": Mutant(
        "agent/core/decisions.py",
        "if kept is not None and self._may_have(kept, allowed):",
        "if kept is not None:",
        ("test_requests.py::test_an_arm_that_may_not_be_given_is_not_kept", SUBJECTS),
    ),
    "a stopped arm is given": Mutant(
        "agent/core/requests.py",
        "if k not in self.exclude and k not in stopped)",
        "if k not in self.exclude)",
        ("test_requests.py::test_a_stopped_arm_is_given_to_nobody",),
    ),
    "half of a request that is refused has happened": Mutant(
        "agent/core/decisions.py",
        "            for one in chosen:\n                self._tried[one.arm] -= 1\n",
        "",
        ("test_requests.py::test_as_many_as_there_is_room_for_or_none",),
    ),
    "a cancelled decision counts as tried": Mutant(
        "agent/core/decisions.py",
        "        self._tried[decision.arm] -= 1\n        if decision",
        "        if decision",
        (CANCELLED,),
    ),
    "a cancelled decision counts as tried after a restart": Mutant(
        "agent/core/records.py", "return not self.played and not self.cancelled", "return not self.played", (CANCELLED,)
    ),
    "a cancelled decision keeps its slot": Mutant(
        "agent/core/decisions.py",
        "            self._slots.remove(cancelled)\n",
        "            pass\n",
        ("test_requests.py::test_without_a_window_what_waited_for_a_cancelled_decision_counts", CANCELLED),
    ),
    "what waited for a cancelled decision waits on": Mutant(
        "agent/core/decisions.py",
        "if has_none else []",
        "if False else []",
        ("test_requests.py::test_without_a_window_what_waited_for_a_cancelled_decision_counts",),
    ),
    "while nothing is released cancelling plays": Mutant(
        "agent/core/decisions.py",
        "has_none = self.terms.reward_window == 0.0 and self.doubt is None",
        "has_none = self.terms.reward_window == 0.0",
        ("test_requests.py::test_while_nothing_is_released_a_decision_can_be_cancelled_and_nothing_is_played",),
    ),
    "a cancelled decision takes a reward": Mutant(
        "agent/core/decisions.py",
        '        if decision.cancelled:\n            raise Cancelled("this',
        '        if False:\n            raise Cancelled("this',
        (CANCELLED,),
    ),
    "a rewarded decision can be cancelled": Mutant(
        "agent/core/decisions.py",
        "        if decision.rewarded:\n            raise Rewarded",
        "        if False:\n            raise Rewarded",
        (USED,),
    ),
    "a decision can be cancelled after its window": Mutant(
        "agent/core/decisions.py",
        'if decision.played or self._slots.is_over(decision, max(self._clock, finite_number("at", at))):',
        "if decision.played:",
        (USED,),
    ),
    "a new life forgets what was cancelled": Mutant(
        "agent/core/restore.py",
        "if it.is_open]",
        "if not it.played]",
        ("test_requests.py::test_a_new_life_neither_counts_nor_forgets_what_was_cancelled",),
    ),
    "the file forgets that a decision was cancelled": Mutant(
        "agent/disk/rows.py",
        "flags = bool(played), bool(late), bool(rewarded), bool(cancelled)",
        "flags = bool(played), bool(late), bool(rewarded), False",
        (SCHEMA_5,),
    ),
    "migration trusts a file of schema 5": Mutant(
        "agent/disk/journal.py", "self.was_migrated = found < 5", "self.was_migrated = True", (SCHEMA_5,)
    ),
    "a damaged file of schema 5 is migrated": Mutant(
        "agent/disk/examination.py",
        "        rows.check()\n    except",
        "        version == 5 or rows.check()\n    except",
        ("test_schema5.py::test_a_damaged_file_is_refused_and_not_migrated",),
    ),
    "one bad reward stops the others": Mutant(
        "agent/core/decisions.py",
        "                outcomes.append(error)\n",
        "                raise error\n",
        ("test_requests.py::test_many_rewards_in_one_step",),
    ),
    "rewards are kept though nobody asked": Mutant(
        "agent/core/decisions.py",
        "if self._keeps_rewards else []",
        "if True else []",
        ("test_requests.py::test_rewards_are_kept_for_the_log_only_if_the_site_says_so", LOG),
    ),
    "kept rewards outlive their decisions": Mutant(
        "agent/disk/rows.py",
        "                self._drop_kept(name)\n                for (before,)",
        "                for (before,)",
        ("test_requests.py::test_rewards_are_kept_for_the_log_only_if_the_site_says_so",),
    ),
    "kept rewards stay when they are no longer kept": Mutant(
        "agent/core/site.py",
        "[] if self._keeps_rewards else [Kept(it, 0, None) for it in self._stored.kept]",
        "[]",
        ("test_requests.py::test_rewards_are_kept_for_the_log_only_if_the_site_says_so",),
    ),
    "the log begins at the beginning, wherever it was asked to": Mutant(
        "agent/core/site_view.py",
        "decisions = [it for it in self._stored.decisions.values() if it.number > after]",
        "decisions = list(self._stored.decisions.values())",
        (LOG,),
    ),
    "anybody reads the log": Mutant(
        "agent/http/access.py", '"log": "log",', '"log": "decide",', ("test_decision_paths.py::test_rights",)
    ),
    "a decision tells its reward": Mutant(
        "agent/http/decisions.py",
        "            at=it.at,\n",
        "            at=it.at + (it.reward or 0.0),\n",
        ("test_decision_paths.py::test_a_decision_as_it_stands",),
    ),
    "unknown query parameters are ignored": Mutant(
        "agent/http/api.py",
        'if query := request.scope["query_string"]:',
        'if (query := request.scope["query_string"]) and False:',
        ("test_decision_paths.py::test_unknown_query_parameters_are_422",),
    ),
    "unknown fields are ignored": Mutant(
        "agent/http/bodies.py",
        "        if name not in names:\n            says",
        "        if False:\n            says",
        ("test_decision_paths.py::test_a_request_that_makes_no_sense_is_422",),
    ),
    "a jump of the clock is believed at once": Mutant(
        "agent/process/clock.py", "        if tick - since < LASTS:\n", "        if False:\n", (JUMP,)
    ),
    "what is forgotten follows the clock at once": Mutant(
        "agent/process/runtime.py", "PatientClock(min(LASTS, 0.1 * config.expire_after))", "PatientClock(0.0)", (JUMP,)
    ),
    "more of a jump is believed than has lasted": Mutant(
        "agent/process/clock.py",
        "(self._jump[0], min(self._jump[1], ahead))",
        "(self._jump[0], ahead)",
        ("test_late_rewards.py::test_a_jump_ahead_is_believed_once_it_has_lasted",),
    ),
    "nobody counts what is forgotten": Mutant(
        "agent/process/runtime.py",
        "            self._forgotten.count(expired)\n",
        "            pass\n",
        ("test_decision_paths.py::test_what_is_forgotten_is_counted_said_and_shown",),
    ),
    "cancelled decisions count as forgotten": Mutant(
        "agent/core/decisions.py",
        "if not decision.rewarded and not decision.cancelled:",
        "if not decision.rewarded:",
        ("test_requests.py::test_expiry_says_how_many_had_no_reward_and_why",),
    ),
    "no warning before decisions are forgotten": Mutant(
        "agent/core/forgetting.py",
        "if left <= _SOON * limits.keep:",
        "if left < 0:",
        ("test_requests.py::test_a_warning_comes_before_a_pending_decision_is_forgotten",),
    ),
}


KNEW = "test_arms.py::test_a_resume_lifts_the_stops_that_it_knew_and_no_others"
NEEDS = "test_arms.py::test_a_stop_needs_nobodys_consent_and_all_else_does"
GIVEN = "test_arms.py::test_a_stopped_arm_is_given_to_nobody_and_its_late_rewards_count"
SIGNED = "test_arms_live.py::test_only_the_site_itself_signs_its_changes"
OWN_ORDER = "test_arms.py::test_rows_are_put_into_the_own_order"
ADDED = "test_arms.py::test_an_arm_is_added_and_learnt_where_it_is_accepted"
SAME_RELEASES = "test_arms.py::test_another_arm_changes_no_release_and_draws_no_noise"
SPREADS = "test_arms_live.py::test_a_stop_is_everywhere_at_once_whoever_dials"

ARMS = {
    "a letter that looks like a Latin one tells arms apart": Mutant(
        "agent/core/arm_names.py",
        "return text.casefold().translate(_AS_LATIN), text.translate(_AS_LATIN).casefold()",
        "return text.casefold(), text.casefold()",
        ("test_arms.py::test_names_that_look_alike",),
    ),
    "upper case in Cyrillic tells arms apart": Mutant(
        "agent/core/arm_names.py",
        "return text.casefold().translate(_AS_LATIN), text",
        "return text, text",
        ("test_arms.py::test_names_that_people_take_for_one",),
    ),
    "an arm may have a name with a variation selector": Mutant(
        "agent/core/arm_names.py",
        "_can_be_read(found) or not _is_plain(found):",
        "_can_be_read(found):",
        ("test_arms.py::test_what_fonts_ignore_is_not_added",),
    ),
    "an arm may have a name with marks from right to left": Mutant(
        "agent/core/arm_names.py",
        "_BLANK and name.isprintable() and",
        "_BLANK and",
        ("test_config.py::test_arms_whose_names_cannot_be_read",),
    ),
    "an arm may have a name that nobody sees": Mutant(
        "agent/core/arm_names.py",
        "not set(name) & _BLANK and ",
        "",
        ("test_arms.py::test_names_that_cannot_be_read_are_not_added",),
    ),
    "a stop waits for consent": Mutant(
        "agent/core/arms.py",
        "        if it.change.is_stop and (_is_final(it) or",
        "        if it.accepted and it.change.is_stop and (_is_final(it) or",
        (NEEDS,),
    ),
    "an arm is added without consent": Mutant(
        "agent/core/arms.py",
        "accepted = sorted((it for it in changes.values() if it.accepted), key",
        "accepted = sorted((it for it in changes.values()), key",
        (NEEDS,),
    ),
    "an arm is resumed without consent": Mutant(
        "agent/core/arms.py",
        'if it.change.kind == "resume" and it.accepted',
        'if it.change.kind == "resume"',
        (KNEW,),
    ),
    "a resume lifts stops that it did not know": Mutant(
        "agent/core/arms.py",
        "(_is_final(it) or (it.change.arm, it.change.id) not in lifted)",
        "(_is_final(it) or it.change.arm not in {arm for arm, _ in lifted})",
        (KNEW,),
    ),
    "a retirement is lifted": Mutant(
        "agent/core/arms.py",
        "(_is_final(it) or (it.change.arm, it.change.id) not in lifted)",
        "((it.change.arm, it.change.id) not in lifted)",
        ("test_arms.py::test_a_retirement_is_final_once_accepted",),
    ),
    "one site fills the others' disks": Mutant(
        "agent/core/arms.py",
        " or room.get(change.by, MAX_CHANGES) <= 0:",
        " or room.get(change.by, MAX_CHANGES) <= -(10**9):",
        ("test_arms.py::test_one_site_cannot_fill_the_others_disks",),
    ),
    "rows of other arms are taken for one's own": Mutant(
        "agent/core/aligned_rows.py",
        "*(place.get(name, -1) for name in added)]",
        "*(num_initial + k if k < len(place) else -1 for k, name in enumerate(added))]",
        (OWN_ORDER, ADDED),
    ),
    "an arm that the other end does not know is averaged with nothing": Mutant(
        "agent/core/aligned_rows.py",
        '        rows["gossiped"] = _row(message.gossiped, here, rest)\n',
        '        rows["gossiped"] = _row(message.gossiped, here, zeros)\n',
        (ADDED,),
    ),
    "another arm changes the size of first batches": Mutant(
        "privacy/mechanism.py",
        "terms_in_steps(policy, num_agents, num_arms, self._low",
        "terms_in_steps(policy, num_agents, self.num_arms, self._low",
        (SAME_RELEASES,),
    ),
    "another arm lets a site forget what it knows": Mutant(
        "agent/core/arm_events.py",
        "self._player.grown(self.stored, num_arms)",
        "self._player.grown(self._stored, num_arms)",
        (SAME_RELEASES,),
    ),
    "another's name is signed": Mutant(
        "agent/gossip/signatures.py",
        "        if name != change.by:\n",
        "        if not name:\n",
        (SIGNED,),
    ),
    "any CA will do": Mutant(
        "agent/gossip/signatures.py",
        "        if not issued or not any(is_issued(chain[-1], ca) for ca in self._cas):\n",
        "        if not issued:\n",
        (SIGNED,),
    ),
    "signatures are not verified": Mutant(
        "agent/gossip/signatures.py",
        "    except (InvalidSignature, ValueError):\n        return False\n",
        "    except (InvalidSignature, ValueError):\n        return True\n",
        (SIGNED,),
    ),
    "what a neighbour tells of the arms is not passed on at once": Mutant(
        "agent/gossip/arm_spread.py",
        "            if new:\n                self.tell()\n",
        "",
        (SPREADS,),
    ),
    "an acceptance is not on disk": Mutant(
        "agent/disk/arm_rows.py",
        "DO UPDATE SET accepted = excluded.accepted ",
        "DO UPDATE SET accepted = accepted ",
        ("test_arms_live.py::test_an_acceptance_is_on_disk",),
    ),
}


CHOICE = {
    "beliefs among some arms are not derived": Mutant(
        "policies/plain.py",
        "    if page.believe is not None:\n        for position in range(len(arms)):\n",
        "    if page.believe is not None:\n        for position in range(0):\n",
        ("test_choice.py::test_a_choice_among_some_arms_is_that_of_a_world_of_these",),
    ),
    "what a page keeps of a choice among some arms is lost": Mutant(
        "policies/plain.py",
        "            known[name] = changed[name]\n",
        "            pass\n",
        ("test_choice.py::test_what_a_page_keeps_of_its_decisions_goes_on",),
    ),
    "any arm is allowed": Mutant(
        "agent/core/choice.py",
        "range(num_arms) if allowed is None else _checked_arms(num_arms, allowed))",
        "range(num_arms))",
        ("test_choice.py::test_an_arm_that_is_not_allowed_is_never_given",),
    ),
    "beliefs of some arms outlive an exchange": Mutant(
        "agent/core/player.py",
        "        self._narrowed.clear()\n        arms = tuple(arms)\n",
        "        arms = tuple(arms)\n",
        ("test_choice.py::test_what_is_remembered_of_some_arms_is_never_stale",),
    ),
    "a draw counts as certain": Mutant(
        "agent/core/choice.py",
        "    if not watched.are_used:\n",
        "    if True:\n",
        ("test_choice.py::test_thompson_says_how_likely_an_arm_was",),
    ),
    "lagging arms are as likely as any": Mutant(
        "rules/propensity.py",
        "        return 1.0 / lagging\n",
        "        return 1.0 / len(n)\n",
        ("test_choice.py::test_lagging_arms_share_their_chance",),
    ),
    "the highest draw is integrated over few cells": Mutant(
        "rules/propensity.py",
        "_PER_CELL = 4.0 * MOST_ERROR**2\n",
        "_PER_CELL = 0.3\n",
        ("test_choice.py::test_the_highest_draw_is_integrated_well",),
    ),
    "the last of tied arms without a spread is likely": Mutant(
        "rules/propensity.py",
        "means[k] > means[fixed]:",
        "means[k] >= means[fixed]:",
        ("test_choice.py::test_equal_arms_are_equally_likely_and_ties_go_to_the_first",),
    ),
    "an own page may misjudge its draws": Mutant(
        "outside/some_arms.py",
        "MOST_DIFFERENCE = 0.12\n",
        "MOST_DIFFERENCE = 2.0\n",
        ("test_choice.py::test_own_pages_that_misjudge_are_refused",),
    ),
    "the index may choose the control arm": Mutant(
        "agent/core/choice.py",
        "[k for k in arms if k != control]",
        "list(arms)",
        ("test_choice.py::test_the_control_arm_has_its_share_exactly",),
    ),
    "a propensity without the rest of the floors": Mutant(
        "rules/shares.py",
        "    return floor + (1.0 - floors) * chance\n",
        "    return max(floor, chance)\n",
        ("test_choice.py::test_shares_of_an_index",),
    ),
    "shares and lagging arms use one draw": Mutant(
        "agent/core/choice.py",
        "given_by_share(draws.share, ",
        "given_by_share(draws.u, ",
        ("test_choice.py::test_shares_of_an_index",),
    ),
    "terms without shares have a new digest": Mutant(
        "agent/core/federation.py",
        '"max_decisions_per_day", "shares"):',
        '"max_decisions_per_day"):',
        ("test_choice.py::test_terms_without_shares_are_what_they_were",),
    ),
    "in the simulator an arm's floor goes to the arm before it": Mutant(
        "engine/sharing.py",
        "np.uint64(given + int(0 <= sharing.control <= given))",
        "np.uint64(given)",
        ("test_shares.py::test_decisions_by_share_in_plain_python_and_compiled[kl]",),
    ),
    "in the simulator the page sees the control arm's row": Mutant(
        "engine/sharing.py",
        "            arm = k + int(k >= control)\n",
        "            arm = k\n",
        ("test_shares.py::test_decisions_by_share_in_plain_python_and_compiled[kl]",),
    ),
}


CLIENT = {
    "a byte now and then prolongs a call": Mutant(
        "agent/client/connection.py",
        "        return self._inner.read(max_bytes, self._backend.left(timeout))\n",
        "        return self._inner.read(max_bytes, timeout)\n",
        ("test_client_faults.py::test_a_call_ends_by_its_deadline",),
    ),
    "a call for asyncio is bounded per read": Mutant(
        "agent/client.py",
        "                    asyncio.timeout(within),\n",
        "",
        ("test_client_faults.py::test_a_call_ends_by_its_deadline[drip_head-asyncio]",),
    ),
    "a deadline bounds one attempt": Mutant(
        "agent/client/connection.py",
        "if attempt < self.retries and wait < left and (",
        "if attempt < self.retries and (",
        ("test_client_faults.py::test_a_call_ends_by_its_deadline[reset-blocking]",),
    ),
    "a timeout bounds the call, not the attempt": Mutant(
        "agent/client/connection.py",
        "        self._until.time = monotonic() + seconds\n",
        "        self._until.time = monotonic() + 100.0 * seconds\n",
        ("test_client_faults.py::test_an_attempt_ends_by_its_timeout[blocking]",),
    ),
    "a repeated request has another key": Mutant(
        "agent/client.py",
        "                with (\n                    self._connection() as pool,\n                    self._network",
        "                if attempt and call.path == '/v1/decisions':\n"
        "                    call = calls.decide()\n"
        "                with (\n                    self._connection() as pool,\n                    self._network",
        ("test_client.py::test_a_decision_is_asked_for_again_with_its_key[503-blocking]",),
    ),
    "what may have happened is repeated": Mutant(
        "agent/client/calls.py",
        "_model(RestoredBody), repeats=False)",
        "_model(RestoredBody))",
        ("test_client.py::test_a_new_life_that_may_have_begun_is_not_asked_for_again[blocking]",),
    ),
    "an error has no field": Mutant(
        "agent/client/calls.py",
        "(said.message, said.code, said.field, said.accepted)",
        "(said.message, said.code)",
        ("test_client_calls.py::test_refusals_are_kinds_of_errors",),
    ),
    "idle connections stay open": Mutant(
        "agent/client/connection.py",
        "        if monotonic() - since > IDLE:\n            return oldest\n",
        "        if monotonic() - since > IDLE:\n            return None\n",
        ("test_client_faults.py::test_connections_that_nobody_needs_are_closed",),
    ),
    "a viewer reads the log": Mutant(
        "agent/process/config.py",
        '    "viewer": frozenset({"view"}),\n',
        '    "viewer": frozenset({"view", "log"}),\n',
        ("test_openapi.py::test_roles_share_all_rights_but_none_has_them_all",),
    ),
    "the shipped document knows a range of rewards": Mutant(
        "agent/http/api.py",
        '        for limit in ("minimum", "maximum"):\n',
        '        for limit in ("minimum",):\n',
        ("test_openapi.py::test_the_shipped_document_is_that_of_the_server",),
    ),
    "operations have no tags": Mutant(
        "agent/http/api.py",
        '            operation["tags"] = [_TAGS[right] if is_open or right is not None else "viewer"]\n',
        "",
        ("test_openapi.py::test_the_shipped_document_is_that_of_the_server",),
    ),
}


COME_AND_GO = "test_sites_come_and_go.py::"
SITES = {
    "N is not counted": Mutant(
        "agent/core/standings.py",
        "            self._num_agents = min(1 + len(there), self._most_agents)\n",
        "            self._num_agents = self._most_agents\n",
        (COME_AND_GO + "test_how_many_sites_there_are_is_heard",),
    ),
    "invented sites know no bound": Mutant(
        "agent/core/standings.py",
        "min(1 + len(there), self._most_agents)",
        "1 + len(there)",
        (COME_AND_GO + "test_one_site_too_many_is_said_and_works",),
    ),
    "who has released nothing does not count": Mutant(
        "agent/core/site_answers.py",
        '        weight = max(getattr(player.me, "share", 1.0), LEAST_WEIGHT)  # 0 says that a site has left\n',
        '        weight = getattr(player.me, "share", 1.0)\n',
        (COME_AND_GO + "test_one_that_has_released_nothing_counts_too",),
    ),
    "a restart forgets that there are neighbours": Mutant(
        "agent/core/site_view.py",
        "for link in stored.links.values() if link.epoch > 0 and not link.left]",
        "for link in stored.links.values() if False]",
        (COME_AND_GO + "test_after_a_restart_neighbours_count_at_once_and_all_with_the_first_answer",),
    ),
    "a leaf renews its standing too seldom": Mutant(
        "agent/core/standings.py",
        "min(self.num_agents, RENEWED)",
        "4 * self.num_agents",
        (COME_AND_GO + "test_a_hub_does_not_lose_its_leaves",),
    ),
    "noise depends on N": Mutant(
        "privacy/mechanism.py",
        'COUNTED = ("num_agents", "averaging", "offset")\n',
        'COUNTED = ("num_agents", "averaging", "offset", "noise_variance")\n',
        (COME_AND_GO + "test_only_what_is_named_depends_on_how_many_there_are",),
    ),
    "a file has the radii of today's N": Mutant(
        "privacy/mechanism.py",
        "        recount(self.me, self._fixed, arm)\n",
        "",
        (COME_AND_GO + "test_sites_that_come_and_go_change_no_release",),
    ),
    "the page does not hear of another N": Mutant(
        "privacy/mechanism.py",
        "                    self.page.recount(self.me, self.terms, arm)\n",
        "                    pass\n",
        (COME_AND_GO + "test_another_n_is_in_the_radii_at_once",),
    ),
    "one that joins begins with nothing": Mutant(
        "policies/joining.py",
        "        if terms.by_rate or not known:\n",
        "        if True:\n",
        (COME_AND_GO + "test_half_of_the_others_must_have_released_an_arm",),
    ),
    "one other site is enough to know an arm": Mutant(
        "rules/gossip.py",
        "released > 0.0 and released >= HALF * others\n",
        "released > 0.0\n",
        (COME_AND_GO + "test_half_of_the_others_must_have_released_an_arm",),
    ),
    "one that joins is as sure as the others": Mutant(
        "rules/gossip.py",
        "    return (own_weight * own_weight * own + others) / (total * total)\n",
        "    return others / (total * total)\n",
        (COME_AND_GO + "test_its_uncertainty_is_that_of_the_networks_mean",),
    ),
    "one that is alone waits for what must mix": Mutant(
        "rules/radius.py",
        "    return 0.0 if num_agents == 1 else alpha1(num_agents)\n",
        "    return alpha1(num_agents)\n",
        (COME_AND_GO + "test_a_site_alone_learns_and_its_knowledge_counts_when_others_come",),
    ),
}


THREADS = "test_million.py::test_any_number_of_threads_computes_the_same"
GREEDY = "test_million.py::test_a_matching_is_the_greedy_one"
MANY = "test_million.py::test_many_agents_are_played_as_few_are"
AGGREGATED = "test_million.py::test_aggregates_are_those_of_all_agents"

MILLION = {
    "what a new neighbour knows already is no news": Mutant(
        "engine/cpu.py",
        "            if first in link_starts:\n",
        "            if first in link_starts and first == 0:\n",
        ("test_million.py::test_many_agents_hear_a_new_neighbour",),
    ),
    "an agent whose choice is taken gives up": Mutant(
        "engine/links.py",
        "                if is_free[choice[i]] == 0:\n                    choice[i] = _choose(links, bits, i, False)\n",
        "                if is_free[choice[i]] == 0:\n                    choice[i] = _NOBODY\n",
        (GREEDY,),
    ),
    "the lowest priority goes first": Mutant(
        "engine/links.py",
        "    return draw(bits, (low << np.uint64(32)) | high)\n",
        "    return ~draw(bits, (low << np.uint64(32)) | high)\n",
        (GREEDY,),
    ),
    "an edge has two priorities": Mutant(
        "engine/links.py",
        "    low, high = np.uint64(min(i, j)), np.uint64(max(i, j))\n",
        "    low, high = np.uint64(i), np.uint64(j)\n",
        (GREEDY,),
    ),
    "threads share an agent": Mutant(
        "engine/threads.py",
        "Crew(ends[part], ends[part + 1], part, parts, board.ctypes.data)",
        "Crew(ends[part], min(ends[part + 1] + 1, num_agents), part, parts, board.ctypes.data)",
        (THREADS,),
    ),
    "who waits for a thread that has failed waits for ever": Mutant(
        "engine/links.py",
        "    while total_of(crew, count, passes) > 0 and not stopped(crew):\n",
        "    while total_of(crew, count, passes) > 0:\n",
        ("test_million.py::test_a_thread_that_fails_stops_the_others",),
    ),
    "every thread averages all links": Mutant(
        "engine/loop.py",
        "                if all_exchange or crew.part == 0:\n",
        "                if True:\n",
        (THREADS,),
    ),
    "many agents: n~ one round early": Mutant(
        "engine/phases.py",
        "        hear_shown(announced, population.agents[i], fixed, population.shown, links, t, i, grows)\n",
        "        hear_shown(announced, population.agents[i], fixed, population.shown, links, t, i, grows)\n"
        "        for k in range(population.shown.rows.shape[2]):\n"
        "            population.agents[i].n_max[k] = population.shown.rows[(t + 1) % 2, i, k]\n",
        (MANY,),
    ),
    "many agents: n~ one round late, every other round": Mutant(
        "engine/network.py",
        "    if shown.stirred[(t + 1) % 2, i] > 0:\n",
        "    if t % 2 == 1 and shown.stirred[(t + 1) % 2, i] > 0:\n",
        (MANY,),
    ),
    "who hears no news forgets its own count": Mutant(
        "engine/network.py",
        "            most[k] = heard(announced(me, terms, k), rows[i, k])\n",
        "            most[k] = rows[i, k]\n",
        (MANY,),
    ),
    "what changed at neighbours is not heard": Mutant(
        "engine/network.py",
        "        news |= stirred[links.neighbours[e]]\n",
        "        news |= stirred[i]\n",
        (MANY,),
    ),
    "a cut graph counts as connected": Mutant(
        "topology.py",
        "        if len(cut_off):\n",
        "        if False:\n",
        ("test_world.py::test_bad_graphs",),
    ),
    "labels of a component stop half way": Mutant(
        "edge_arrays.py",
        "            if np.array_equal(further, labels):\n",
        "            if True:\n",
        ("test_million.py::test_components_are_those_of_networkx", "test_million.py::test_large_graphs"),
    ),
    "one diagonal neighbour of a cell is forgotten": Mutant(
        "random_edges.py",
        "((0, 0), (0, 1), (1, -1), (1, 0), (1, 1))",
        "((0, 0), (0, 1), (1, 0), (1, 1))",
        ("test_million.py::test_cells_find_every_close_pair",),
    ),
    "agents with different weights share a setting": Mutant(
        "engine/layout.py",
        "    table = np.column_stack([_shares(problem), problem.graph.degrees])\n",
        "    table = np.column_stack([np.ones(problem.num_agents), problem.graph.degrees])\n",
        ("test_million.py::test_agents_that_know_the_same_share_a_setting",),
    ),
    "misses of aggregates are those since the last checkpoint": Mutant(
        "engine/cpu.py",
        '        if keep == "agents":\n            misses[:] = 0.0\n',
        "        misses[:] = 0.0\n",
        (AGGREGATED,),
    ),
    "the largest stands where the least should": Mutant(
        "engine/cpu.py",
        'STATISTICS = ("", "_min", "_max", "_std")',
        'STATISTICS = ("", "_max", "_min", "_std")',
        (AGGREGATED,),
    ),
}


TRAVEL = "test_ray.py::test_own_modules_travel"

MANY_MACHINES = {
    "a part that died is taken for finished": Mutant(
        "simulation/cluster.py",
        "                    waiting.appendleft(part)\n",
        "                    finished += part.pulls\n",
        ("test_ray.py::test_a_worker_dies",),
    ),
    "the death of a machine ends the run": Mutant(
        "simulation/cluster.py",
        "errors.NodeDiedError, ",
        "",
        ("test_ray.py::test_a_node_dies",),
    ),
    "machines with other versions compute too": Mutant(
        "simulation/cluster.py",
        "    if differ:\n",
        "    if False:\n",
        ("test_ray.py::test_a_machine_with_another_version_is_refused",),
    ),
    "each part plays the first trials": Mutant(
        "simulation/cluster.py",
        "trials=range(start, stop)",
        "trials=range(stop - start)",
        ("test_ray.py::test_simulate_gives_the_same_bits",),
    ),
    "tasks go on after Ctrl-C": Mutant(
        "simulation/cluster.py",
        "                ray.cancel(task, force=True)\n",
        "                pass\n",
        ("test_ray.py::test_stopped_by_hand",),
    ),
    "whatever answers is taken for Ray": Mutant(
        "simulation/cluster.py",
        "    if len(answer) < 9 or answer[3] != 4:",
        "    if len(answer) < 9:",
        ("test_ray.py::test_where_no_ray_answers",),
    ),
    "a module travels without those that it imports": Mutant(
        "outside/shipping.py", "root is not None and root in roots:", "root is not None and name in modules:", (TRAVEL,)
    ),
    "an edited module does not replace the earlier one": Mutant(
        "outside/shipping.py", "            del sys.modules[name]\n", "            pass\n", (TRAVEL,)
    ),
    "anybody may write what runs": Mutant(
        "outside/shipping.py", "found.st_mode & 0o022", "found.st_mode & 0", (TRAVEL,)
    ),
    "a class of a script is sent": Mutant(
        "outside/shipping.py",
        "    if pickler.modules & _SCRIPTS:\n",
        "    if False:\n",
        ("test_ray.py::test_what_cannot_travel_is_refused",),
    ),
    "a merge writes every part over the first": Mutant(
        "simulation/parts.py",
        "start, end = end, end + part.sizes",
        "start, end = 0, part.sizes",
        ("test_concat.py::test_the_parts_are_the_whole_bit_for_bit",),
    ),
    "a merge leaves out what the parts say of their trials": Mutant(
        "simulation/parts.py",
        "first.assign_attrs(attributes_of_all(about))",
        "first",
        ("test_concat.py::test_the_parts_are_the_whole_bit_for_bit",),
    ),
}

FIVE_ROUNDS = "test_cuda.py::test_the_kernels_play_as_the_cpu_engine_does[kernels of five rounds]"
IN_WARPS = "test_cuda.py::test_the_kernels_play_as_the_cpu_engine_does[several warps and blocks]"
IN_A_BLOCK = "test_cuda.py::test_the_kernels_play_as_the_cpu_engine_does[all links]"

GPU = {
    "threads without an agent act": Mutant(
        "engine/cuda/warp.py", "mine_first + np.uint64(is_mine)", "mine_first + np.uint64(1)", (IN_WARPS,)
    ),
    "neighbours' bits are shifted": Mutant(
        "engine/cuda/warp.py", "np.uint32(1) << neighbours[e]", "np.uint32(2) << neighbours[e]", (FIVE_ROUNDS,)
    ),
    "the last team of a warp is left out": Mutant(
        "engine/cuda/warp.py", "is_mine = team < per_warp and", "is_mine = team < per_warp - 1 and", (IN_WARPS,)
    ),
    "nobody averages some columns": Mutant(
        "engine/cuda/warp.py",
        "            np.int64(num_agents),\n",
        "            np.int64(num_agents + 1),\n",
        ("test_cuda.py::test_the_kernels_play_as_the_cpu_engine_does[FedBatch by patients, at rates]",),
    ),
    "what is far is forgotten between kernels": Mutant(
        "engine/cuda/warp.py", "            trials.far[r, i] = far[0]\n", "", (FIVE_ROUNDS,)
    ),
    "n~ is read from the half that is being written": Mutant(
        "engine/cuda/warp.py",
        "population.shown.rows[t & 1], population.shown.rows[(t + 1) & 1]",
        "population.shown.rows[(t + 1) & 1], population.shown.rows[(t + 1) & 1]",
        (FIVE_ROUNDS,),
    ),
    "misses are counted on from the row before": Mutant(
        "engine/cuda/warp.py",
        "misses[0] = 0.0 if is_fresh else",
        "misses[0] = 0.0 if first == 0 else",
        (FIVE_ROUNDS,),
    ),
    "parts of a run begin with trial 0": Mutant(
        "engine/cuda/warp.py",
        "trial = np.uint64(first_trial) + np.uint64(r)",
        "trial = np.uint64(r)",
        ("test_cuda.py::test_the_kernels_play_as_the_cpu_engine_does[a warp for each trial]",),
    ),
    "readings of a block go into the first row": Mutant(
        "engine/cuda/blocks.py", "readings.tried[checkpoint, r, i, k]", "readings.tried[0, r, i, k]", (IN_A_BLOCK,)
    ),
    "links average before all have acted": Mutant(
        "engine/cuda/device.py",
        "                meet(crew)\n                if exchanges:\n",
        "                if exchanges:\n",
        (FIVE_ROUNDS,),
    ),
    "agents act before all links have averaged": Mutant(
        "engine/cuda/device.py",
        "                        exchange(population, links, tape, t, bits)\n                    meet(crew)\n",
        "                        exchange(population, links, tape, t, bits)\n",
        (FIVE_ROUNDS, IN_A_BLOCK),
    ),
    "a grid empties the total that is read": Mutant(
        "engine/cuda/device.py",
        "crew.board[(pass_number + 2) % 3] = 0",
        "crew.board[pass_number % 3] = 0",
        ("test_cuda.py::test_the_kernels_play_as_the_cpu_engine_does[a grid that matches]",),
    ),
    "the slabs' table begins one entry late": Mutant(
        "engine/cuda/device.py",
        "[np.uint64(_SLAB_START) + place]",
        "[np.uint64(_SLAB_START + 1) + place]",
        ("test_cuda.py::test_the_kernels_play_as_the_cpu_engine_does[FedBatch Thompson]",),
    ),
    "a control arm reads what was known before the first round": Mutant(
        "engine/cuda/blocks.py",
        "                    as_bytes(share.few[r]),\n",
        "                    share.fresh[r],\n",
        ("test_cuda.py::test_the_kernels_play_as_the_cpu_engine_does[a control arm]",),
    ),
    "who stopped in one kernel is well in the next": Mutant(
        "engine/cuda/device.py",
        "_PLAYING if is_well else _HAS_STOPPED",
        "_PLAYING",
        ("test_cuda.py::test_a_page_that_fails_on_the_gpu_is_refused_in_words[no such arm, several kernels]",),
    ),
    "a stage goes on after the means have changed": Mutant(
        "engine/cuda/engine.py",
        "min(done + most, time, changes[place] - 1 if place < len(changes) else time)",
        "min(done + most, time)",
        ("test_cuda.py::test_stages_cover_a_run_and_end_where_something_is_read_or_changes",),
    ),
    "regret counts all pulls with the last gaps": Mutant(
        "engine/cuda/engine.py",
        "lost, best, counted = regret, best_pulls, row.tried",
        "pass",
        ("test_cuda.py::test_books_are_the_sums_written_out",),
    ),
    "decisions by share are made in a warp": Mutant(
        "engine/cuda/warp.py",
        "not (kit.is_late or kit.has_shares or",
        "not (kit.is_late or",
        ("test_cuda.py::test_who_needs_everybody_does_not_play_in_a_warp",),
    ),
}

PAGE = {
    "a stopped arm may be the best": Mutant(
        "agent/core/answer.py",
        "active = [k for k, is_active in enumerate(belief.active) if is_active]",
        "active = list(range(num_arms))",
        ("test_answer.py::test_a_stopped_arm_is_no_candidate",),
    ),
    "a stopped arm that is ahead is left out in silence": Mutant(
        "agent/core/answer.py",
        'if belief.status[k] != "active"), key',
        "if False), key",
        ("test_answer.py::test_a_stopped_arm_with_a_higher_average_is_named",),
    ),
    "what an arm loses is of another moment than its estimate": Mutant(
        "agent/http/snapshot.py",
        "losses_of(answer.leader, theta, errors, site.stopped)",
        "losses_of(answer.leader, site.belief.theta, errors, site.stopped)",
        ("test_answer.py::test_what_an_arm_loses_fits_the_estimates_beside_it",),
    ),
    "an arm of which nothing is known leaves the others' chances as they are": Mutant(
        "agent/core/answer.py",
        "    if len(spreads) < len(active):",
        "    if not spreads:",
        ("test_answer.py::test_an_unknown_arm_leaves_the_chance_open",),
    ),
    "a margin counts as a typical error": Mutant(
        "agent/core/site_answers.py",
        "it.theta, self._errors(it), it.weights",
        "it.theta, self.radius, it.weights",
        ("test_answer.py::test_a_margin_is_no_typical_error",),
    ),
    "a site that knows little is taken for one that knows as much": Mutant(
        "rules/belief.py",
        "sqrt(max(1.0, variance_of_all / (taken * own_variance)))",
        "1.0",
        ("test_patients.py::test_what_others_do_not_know_counts",),
    ),
    "who is cut off is moved by its own patients": Mutant(
        "agent/core/decisions.py",
        "        self._remember()\n",
        "",
        ("test_answer.py::test_the_answer_is_that_of_the_last_exchange",),
    ),
    "an exchange leaves the answer as it was": Mutant(
        "agent/core/site.py",
        "            self._at_exchange, self._has_exchanged = None, True\n",
        "            self._has_exchanged = True\n",
        ("test_answer.py::test_the_answer_is_that_of_the_last_exchange",),
    ),
    "an answer that comes twice counts as an exchange": Mutant(
        "agent/core/site.py",
        "if link.register[1] != stamp:",
        "if True:",
        ("test_answer.py::test_an_answer_that_was_lost_is_no_exchange",),
    ),
    "what was known before a start is told after it": Mutant(
        "agent/core/site_answers.py",
        "if not self._is_alone and not self._has_exchanged and sum(belief.active) > 1:",
        "if False:",
        ("test_answer.py::test_who_has_not_exchanged_since_the_start_says_nothing",),
    ),
    "95 percent settle it": Mutant(
        "rules/belief.py",
        "SURE = 0.99",
        "SURE = 0.95",
        ("test_answer.py::test_95_percent_settle_nothing",),
    ),
    "what exchanges still move is settled": Mutant(
        "agent/core/player.py",
        "return self.exchanges >= ENOUGH_EXCHANGES and self.unrest <= RESTLESS",
        "return self.exchanges >= ENOUGH_EXCHANGES",
        ("test_answer.py::test_while_exchanges_move_estimates_nothing_is_settled",),
    ),
    "the first exchanges settle it": Mutant(
        "agent/core/player.py",
        "return self.exchanges >= ENOUGH_EXCHANGES and self.unrest <= RESTLESS",
        "return self.unrest <= RESTLESS",
        ("test_answer.py::test_who_has_not_exchanged_since_the_start_says_nothing",),
    ),
    "a part of the network settles it": Mutant(
        "agent/core/site_answers.py",
        "(player.is_mixed and self._standings.is_whole)",
        "player.is_mixed",
        ("test_answer.py::test_while_the_network_is_parted_nothing_is_settled",),
    ),
    "a liar's sites have released what they like": Mutant(
        "agent/core/standings.py",
        "_at_most(it.standing, most) for it",
        "it.standing for it",
        ("test_answer.py::test_invented_sites_can_be_counted_and_claim_no_more_than_time_allows",),
    ),
    "nobody is told how many sites count": Mutant(
        "agent/core/answer.py",
        'else f"over all patients of {num_agents} sites"',
        'else "over all patients"',
        ("test_answer.py::test_invented_sites_can_be_counted_and_claim_no_more_than_time_allows",),
    ),
    "the loss is as fine with many arms as with few": Mutant(
        "rules/belief.py",
        "max(_PER_CELL, _PER_ARM * len(means))",
        "_PER_CELL",
        ("test_answer.py::test_the_loss_takes_no_more_time_with_many_arms_than_it_must",),
    ),
    "warnings work out an answer every second": Mutant(
        "agent/core/site_answers.py",
        "        if found is None:\n            return None  # an answer takes longer: only where it matters\n"
        "        chance = self.answer.chance\n",
        "        chance = self.answer.chance\n        if found is None:\n            return None\n",
        ("test_answer.py::test_warnings_ask_for_an_answer_only_where_one_matters",),
    ),
    "only the JSON of a state counts as work": Mutant(
        "agent/http/events.py",
        "reading + writing",
        "writing",
        ("test_events.py::test_a_state_that_takes_long_to_read_is_read_rarely",),
    ),
    "nobody measures how long a state takes to read": Mutant(
        "agent/process/runtime.py",
        "timed(lambda: self._shown(site))",
        "(self._shown(site), 0.0)",
        ("test_events.py::test_how_long_others_wait_for_a_state_is_measured_where_it_is_read",),
    ),
    "a problem never ends": Mutant(
        "agent/http/events.py",
        "if said != self.last_problem:",
        "if said != self.last_problem and said is not None:",
        ("test_events.py::test_a_problem_is_told_once_also_when_it_is_over_and_a_state_follows",),
    ),
    "chances are rounded up": Mutant(
        "agent/core/answer.py",
        'f"{floor(100.0 * chance)} %"',
        'f"{round(100.0 * chance)} %"',
        ("test_answer.py::test_nobody_is_told_more_than_is_known",),
    ),
    "errors of two arms add up instead of their squares": Mutant(
        "rules/belief.py",
        "return sqrt(spread * spread + other * other)",
        "return spread + other",
        ("test_answer.py::test_chances_and_loss_against_brute_force",),
    ),
    "the loss forgets how sure the leader is": Mutant(
        "rules/belief.py",
        "return _below(x, means[leader], spreads[leader]), 1.0 - below_all",
        "return float(x >= means[leader]), 1.0 - below_all",
        ("test_answer.py::test_two_arms_have_a_closed_form",),
    ),
    "the history shows the open batch": Mutant(
        "agent/http/snapshot.py",
        "return Point(at, site.theta, radii, site.own_means,",
        "return Point(at, site.theta, radii, tuple(map(float, site._player.me.total)),",
        ("test_events.py::test_an_unreleased_reward_changes_no_byte_of_what_viewers_see",),
    ),
    "the history forgets how it began": Mutant(
        "agent/core/history.py",
        "range(1, len(points) - 1),",
        "range(len(points) - 1),",
        ("test_events.py::test_the_whole_run_stays_visible",),
    ),
    "any number of streams": Mutant(
        "agent/http/events.py",
        "if len(self._streams) >= MAX_STREAMS:",
        "if False:",
        ("test_events.py::test_the_17th_stream_is_refused_in_words_and_a_place_is_free_again",),
    ),
    "who vanishes keeps a place": Mutant(
        "agent/http/events.py",
        "        self._streams.discard(stream)\n",
        "",
        ("test_events.py::test_the_17th_stream_is_refused_in_words_and_a_place_is_free_again",),
    ),
    "all that a slow reader has missed waits for it": Mutant(
        "agent/http/events.py",
        "self._points: deque[bytes] = deque(maxlen=POINTS_WAITING)",
        "self._points: deque[bytes] = deque()",
        ("test_events.py::test_a_reader_that_does_not_read_holds_little_and_is_dropped",),
    ),
    "streams outlive the agent": Mutant(
        "agent/http/events.py",
        "            stream.end()\n",
        "            pass\n",
        ("test_events.py::test_a_stopping_agent_ends_streams_at_once",),
    ),
    "the page's errors have no policy": Mutant(
        "agent/process/serve.py",
        "headers=list(PAGE_HEADERS.items())",
        "headers=[]",
        ("test_events.py::test_every_answer_has_the_strict_headers",),
    ),
    "an unreadable request is answered without a policy": Mutant(
        "agent/http/server.py",
        "            *self.server_state.default_headers,  # those of every answer\n",
        "",
        ("test_api.py::test_what_is_no_http_is_told_in_the_form_of_all_errors",),
    ),
    "anything that begins like the page needs no token": Mutant(
        "agent/http/server.py",
        'path.startswith("/page/")',
        'path.startswith("/page")',
        ("test_events.py::test_files_need_no_token_but_the_host_must_be_ours",),
    ),
    "a page of another site frames an agent": Mutant(
        "agent/http/access.py",
        'kind == (b"navigate", b"document")',
        'kind[0] == b"navigate"',
        ("test_events.py::test_pages_of_others_may_open_the_page_and_nothing_else",),
    ),
    "small states vanish in the system's buffers": Mutant(
        "agent/http/events.py",
        "            narrow()",
        "            pass",
        ("test_events.py::test_readers_of_small_states_that_do_not_read_are_dropped_soon",),
    ),
    "who may only report may watch": Mutant(
        "agent/http/access.py",
        '    "events": "view",\n',
        '    "events": None,\n',
        ("test_events.py::test_without_the_right_to_view_nobody_watches",),
    ),
}

NOTEBOOK = {
    "a notebook shows no picture": Mutant(
        "figures/shown.py",
        "def _repr_png_(",
        "def _picture(",
        ("test_notebook.py::test_figures_show_themselves",),
    ),
    "labels reach a notebook as HTML": Mutant(
        "notebook.py",
        "{escape(cell)}",
        "{cell}",
        ("test_notebook.py::test_html_is_small_escaped_and_without_colours",),
    ),
    "a notebook is flooded with progress": Mutant(
        "progress.py",
        "now - self.said < self.between",
        "False",
        ("test_notebook.py::test_a_bar_in_a_notebook",),
    ),
    "a confidence interval as if trials were many": Mutant(
        "figures/bands.py",
        "_student(trials - 1)",
        "1.96",
        ("test_plot.py::test_bands_of_the_mean",),
    ),
    "a policy that depends on what is swept becomes a reference line": Mutant(
        "figures/sweep.py",
        "np.ptp(means) <= 1e-9 * means.max()",
        "True",
        ("test_notebook.py::test_policies_that_depend_on_what_is_swept_stay_curves",),
    ),
    "of two seeds one is lost": Mutant(
        "experiments/sweep.py",
        'return "problem_seed" if swept == "problem.seed" else swept',
        "return swept",
        ("test_notebook.py::test_seeds_can_be_swept",),
    ),
    "a reader that goes away is an error": Mutant(
        "cli/errors.py",
        "if end.code == 1 and (",
        "if end.code == 3 and (",
        ("test_cli.py::test_a_reader_that_goes_away",),
    ),
    "parts that keep different things differ in all": Mutant(
        "simulation/parts.py",
        '        "keep": about.pop("keep", "agents"),\n',
        "",
        ("test_notebook.py::test_parts_that_keep_different_things",),
    ),
}

NEEDED = "test_status.py::test_what_needs_a_person"
UNREACHED = "test_status.py::test_an_unreachable_neighbour_and_an_agent_that_does_not_serve"
LEFT_ALONE = "test_check.py::test_a_state_that_can_be_used_is_looked_at_and_left_alone"
HELD_BY = "test_check.py::test_a_state_that_another_process_has_open_and_one_that_was_killed"

OPERATORS = {
    "a repeated report is another reward per minute": Mutant(
        "agent/core/decisions.py",
        "        if decision.rewarded:\n            return Step(True)\n",
        "        if decision.rewarded:\n            self.reported += 1\n            return Step(True)\n",
        ("test_events.py::test_the_rate_of_rewards_counts_each_once",),
    ),
    "nobody tells of one that was removed without leave": Mutant(
        "agent/core/notices.py",
        "        if not it.left and it.neighbour not in there and any(it.register[0])\n",
        "        if False\n",
        ("test_neighbour_status.py::TestState",),
    ),
    "what follows from the terms needs a person": Mutant(
        "agent/http/state.py", "(*state.warnings_of_terms, *state.notes)]", "state.notes]", (NEEDED,)
    ),
    "a note needs a person": Mutant(
        "agent/http/state.py", "(*state.warnings_of_terms, *state.notes)]", "state.warnings_of_terms]", (NEEDED,)
    ),
    "a suspended arm is no note": Mutant(
        "agent/core/notices.py",
        'said.append(Note(f"arms are stopped',
        'said.append(str(f"arms are stopped',
        ("test_status.py::test_a_suspended_arm_is_a_note_and_a_change_that_waits_needs_a_person",),
    ),
    "an answer without end is read": Mutant(
        "agent/client/connection.py",
        "_LONGEST = 32_000_000\n",
        "_LONGEST = 200_000_000\n",
        ("test_status.py::test_an_answer_without_end_is_not_read",),
    ),
    "a tunnel forgets a connection that is being accepted": Mutant(
        "agent/gossip/dialled.py",
        "            await asyncio.sleep(0)  # asyncio would",
        "            # asyncio would",
        ("test_check.py::test_a_tunnel_that_is_closed_leaves_no_connection",),
    ),
    "gRPC logs its details": Mutant(
        "agent/process/logs.py", '"asyncio", "grpc"', '"asyncio"', ("test_logs.py::test_libraries_do_not_log_details",)
    ),
    "a neighbour that has left needs a person": Mutant(
        "agent/http/state.py",
        "if not it.reachable and not it.left]",
        "if not it.reachable]",
        ("test_status.py::test_a_neighbour_needs_a_person_unless_it_is_reachable_or_has_left",),
    ),
    "status always exits with 0": Mutant(
        "cli/status.py", "    if needed:\n        raise typer.Exit(1)", "    needed = False", (UNREACHED,)
    ),
    "status does not ask whether an agent serves": Mutant(
        "cli/status_view.py", "            client.ready()\n", "            pass\n", (UNREACHED,)
    ),
    "status sends no token of the site": Mutant(
        "cli/status.py", 'else token_with(site, "view"))', "else None)", ("test_status.py::test_tokens",)
    ),
    "control characters of others reach the terminal": Mutant(
        "checks.py",
        'letter if letter.isprintable() else "?" for',
        "letter for",
        ("test_status.py::test_texts_of_others_are_neither_markup_nor_control_characters",),
    ),
    "status has the width of a terminal in a pipe": Mutant(
        "cli/status.py",
        "width=None if sys.stdout.isatty() else 10_000",
        "width=80",
        ("test_status.py::test_nothing_is_cut_off_in_a_pipe",),
    ),
    "the check does not notice who has the state open": Mutant(
        "agent/disk/examination.py", "None if kind == fcntl.F_UNLCK else process", "None", (HELD_BY,)
    ),
    "the check leaves files beside the state": Mutant(
        "agent/disk/examination.py", "?mode=ro&immutable=1", "?mode=ro", (HELD_BY, LEFT_ALONE)
    ),
    "the check does not compare terms": Mutant(
        "agent/process/check.py",
        "if differences := terms.difference(theirs):",
        "if differences := terms.difference(terms.terms()):",
        ("test_check.py::test_a_neighbour_with_other_terms",),
    ),
    "the check does not look at the clock": Mutant(
        "agent/process/check.py",
        "if now < last - SMALL_STEP:",
        "if now < last - 1e9:",
        ("test_check.py::test_a_clock_behind_the_last_time_of_the_state",),
    ),
    "the check always exits with 0": Mutant(
        "cli/agent.py",
        'would not work")\n        raise typer.Exit(1)',
        'would not work")\n        return',
        ("test_check.py::test_exit_codes",),
    ),
    "a line of the log is not ASCII": Mutant(
        "agent/process/logs.py",
        "json.dumps(line)",
        "json.dumps(line, ensure_ascii=False)",
        ("test_logs.py::test_a_message_of_several_lines_and_an_exception_are_one_line",),
    ),
    "the last words are not JSON": Mutant(
        "cli/agent.py",
        "        if not in_json:\n",
        "        if True:\n",
        ("test_logs.py::test_the_last_words_of_an_agent_that_cannot_start_are_a_line_too",),
    ),
    "putting the terms back is not logged": Mutant(
        "agent/process/logs.py",
        'elif "terms" in before:',
        "elif not before:",
        ("test_logs.py::test_what_a_changed_file_needs_a_restart_for",),
    ),
    "a metric of the status of an arm is the same for all": Mutant(
        "agent/http/metrics.py",
        "float(arm.status == status)",
        'float(arm.status != "active")',
        ("test_api.py::test_metrics_agree_with_the_state",),
    ),
}

PLANNING = {
    "an arm that leads once counts as found": Mutant(
        "planning/trials.py",
        "np.logical_and.accumulate(leads[..., ::-1] == 1.0, axis=-1)[..., ::-1].astype(np.float64)",
        "leads",
        ("test_plan.py::test_found_means_that_the_best_arm_leads_and_keeps_the_lead",),
    ),
    "who knows nothing has found the best arm": Mutant(
        "planning/question.py",
        "        return self.arms - 1\n",
        "        return 0\n",
        ("test_plan.py::test_before_the_first_releases_nobody_has_found_anything",),
    ),
    "biases that help every site": Mutant(
        "planning/question.py",
        "np.linspace(-question.bias, question.bias, question.sites)",
        "np.linspace(0.0, question.bias, question.sites)",
        ("test_plan.py::test_biases_are_evenly_spread_and_sum_to_zero",),
    ),
    "a bound for one site": Mutant(
        "planning/bounds.py",
        "    return needed / (question.sites * largest)\n",
        "    return needed / largest\n",
        ("test_plan.py::test_no_way_finds_the_best_arm_with_fewer_patients_than_the_bound",),
    ),
    "the radius of one site": Mutant(
        "planning/bounds.py",
        "radii.deviation(own / question.sites)",
        "radii.deviation(own)",
        ("test_plan.py::test_the_radius_is_that_of_the_page",),
    ),
    "nothing is hopeless": Mutant(
        "planning/words.py",
        "    if low <= guess:\n",
        "    if low < 0.0:\n",
        ("test_plan.py::test_words_say_when_it_is_hopeless",),
    ),
}

AREAS = {
    "the paper": PAPER,
    "the engine": ENGINE,
    "kinds of rewards": REWARDS,
    "worlds that change": CHANGING,
    "delays in the simulator": DELAYS,
    "code from outside": OUTSIDE,
    "FedBatch": FED_BATCH,
    "other policies": BASELINES,
    "privacy of real rewards": PRIVACY,
    "links between sites": FLOW,
    "the live site": SITE,
    "its disk": DISK,
    "late rewards": LATE,
    "whose average counts": PATIENTS,
    "the doors": DOORS,
    "neighbours that lie": LIARS,
    "old copies": OLD_COPIES,
    "extras": EXTRAS,
    "requests": REQUESTS,
    "arms that change": ARMS,
    "choices among some arms, propensities, shares": CHOICE,
    "the client": CLIENT,
    "sites that come and go": SITES,
    "a million agents": MILLION,
    "many machines": MANY_MACHINES,
    "the GPU": GPU,
    "the page": PAGE,
    "notebooks and figures": NOTEBOOK,
    "what operators see": OPERATORS,
    "planning": PLANNING,
}
MUTANTS = {name: mutant for area in AREAS.values() for name, mutant in area.items()}
