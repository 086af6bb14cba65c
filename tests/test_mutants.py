"""Can the tests fail? Each mutant breaks one rule; some test must notice. Slow: each compiles anew.

``pytest tests/test_mutants.py -s`` prints who noticed; the table is kept in tests/README.md.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WATCHERS = [
    "test_paper.py",
    "test_simulate.py",
    "test_streams.py",
    "test_golden.py",
    "test_fedbatch.py",
    "test_baselines.py",
]

MUTANTS = {
    "no consistency rule (line 6)": (
        "rules/choose.py",
        "        if n[k] < n_max[k] - allowed:  # line 6\n            lagging += 1",
        "        if False:\n            lagging += 1",
    ),
    "consistency one pull too strict": (
        "rules/choose.py",
        "n[k] < n_max[k] - allowed:  # line 6",
        "n[k] <= n_max[k] - allowed:  # line 6",
    ),
    "the first lagging arm, not a random one (line 13)": ("rules/choose.py", "int(u * lagging)", "0"),
    "the last arm wins a tie": ("rules/choose.py", "belief > best", "belief >= best"),
    "averaging after the increment instead of before (line 20)": (
        "simulation/round.py",
        "    pull(state, world, plan, draws, clock, i, arm)\n",
        "    pull(state, world, plan, draws, clock, i, arm)\n"
        "    if plan.network == GOSSIP and not plan.gossips_pairs:\n"
        "        state.theta[i, arm] += state.x_mean[i, arm] - state.x_before[i]\n"
        "        state.x_before[i] = state.x_mean[i, arm]\n",
    ),
    "n~ shifted by a round: lagging against n~(t+1)": (
        "simulation/decide.py",
        "n, n_max = state.n[i], state.n_max[t & 1, i]",
        "n, n_max = state.n[i], state.n_max[(t + 1) & 1, i]",
    ),
    "n~ hears only the own count (line 5)": (
        "rules/gossip.py",
        "return neighbour_n_max if neighbour_n_max > known else known",
        "return known",
    ),
    "the average keeps one end's value": ("rules/gossip.py", "(theta_i + theta_j) / 2.0", "theta_i"),
    "C without the factor N": (
        "rules/radius.py",
        "return 2.0 * num_agents * constant / n",
        "return 2.0 * constant / n",
    ),
    "C~ with log n where the first pull is noised": (
        "simulation/pull.py",
        "noised = n if plan.mechanism == PULL_TREE else n - 1",
        "noised = n - 1",
    ),
    "the first pull goes out raw": (
        "rules/mean.py",
        "    total = prefix_noise(slots, n & (n - 1)) + fresh\n",
        "    total = prefix_noise(slots, n & (n - 1)) + (fresh if n > 1 else 0.0)\n",
    ),
    "eps' = eps / ceil(log T)": (
        "rules/mean.py",
        "return epsilon / max_pulls.bit_length()",
        "return epsilon / ceil(log(max_pulls))",
    ),
    "rewards are not clamped": ("rules/mean.py", "return min(max(reward, low), high)", "return reward"),
    "noise is redrawn every time": (
        "simulation/pull.py",
        "_noise(plan, draws, i, arm, n))",
        "_noise(plan, draws, i, arm, t))",
    ),
    "empty partial sums get noise too": ("rules/mean.py", "if first_new != t and last > shared:", "if first_new != t:"),
    "weights are ignored": (
        "rules/gossip.py",
        "return theta + share * x_mean - share * x_mean_before",
        "return theta + x_mean - x_mean_before",
    ),
    "several edges average without conserving the sum": (
        "simulation/exchange.py",
        "                mixed[j, c] -= step\n",
        "",
    ),
    "all trials are the same": (
        "simulation/streams.py",
        "s = _mix((s ^ np.uint64(trial)) + GOLDEN)",
        "s = _mix(s + GOLDEN)",
    ),
    "the normal loses its tail": ("simulation/streams.py", "x = _EDGE + beyond", "x = _EDGE"),
    "rewards drawn by round instead of by pull": (
        "simulation/pull.py",
        "_reward(world, draws, t, i, arm, state.n[i, arm])",
        "_reward(world, draws, t, i, arm, t)",
    ),
    "UCB1 with 8 / n": ("rules/radius.py", "return 2.0 / n", "return 8.0 / n"),
    "central variance with weights not squared": (
        "simulation/exchange.py",
        "variance += weight * weight *",
        "variance += weight *",
    ),
    "sigma ignored": (
        "simulation/pull.py",
        "mean + world.sigma * standard_normal(bits)",
        "mean + standard_normal(bits)",
    ),
    "the range ignored in C~": ("simulation/plan.py", "policy.epsilon * plain.scale / sensitivity", "policy.epsilon"),
    "a batch with one reward too few": (
        "rules/batch.py",
        "return max(first_batch, ceil(",
        "return max(first_batch - 1, ceil(",
    ),
    "batches shrink after the first": (
        "rules/batch.py",
        "return max(first_batch, ceil((growth - 1.0) * n))",
        "return ceil((growth - 1.0) * n) if n else first_batch",
    ),
    "batches are released without noise": ("rules/batch.py", "(total + noise) / size", "total / size"),
    "releases weigh alike": ("rules/batch.py", "return 1.0 / (variance * precision)", "return 0.5"),
    "the learnt variance has no floor": ("rules/batch.py", "0.5 * most), most)", "0.0), most)"),
    "rewards of the last batch stay in the next sum": (
        "simulation/pull.py",
        "    state.total[i, arm] = 0.0\n",
        "",
    ),
    "a site without a release counts as zero": (
        "simulation/exchange.py",
        "    if state.releases[i, arm] == 1:\n        gossiped[i, num_arms + arm] += plan.share[i]\n",
        "    gossiped[i, num_arms + arm] = 1.0\n",
    ),
    "unknown arms are not tried": (
        "rules/gossip.py",
        "return releases > 0 and weight > 0.0 and weight",
        "return weight > 0.0 and weight",
    ),
    "Thompson draws with the variance for the deviation": (
        "rules/radius.py",
        "return sqrt(variance)",
        "return variance",
    ),
    "d_eps without noise": ("rules/kl.py", "if x * mass >= q * tilt:", "if x >= 0.0:"),
    "the tail forgets a release": ("rules/radius.py", "-largest * num_releases *", "-largest * (num_releases - 1) *"),
    "slow agents act in every round": ("simulation/round.py", "< world.rates[i]", "< 1.0"),
    "all agents share the fastest clock": ("simulation/round.py", "log_t if world.in_step else log(clock)", "log_t"),
    "an episode ends early": ("simulation/decide.py", "- n[arm] - 1  # after", "- n[arm] - 2  # after"),
    "coop-UCB2 adds rewards after mixing only": (
        "simulation/pull.py",
        "state.gossiped[i, num_arms + arm] += plan.share[i]",
        "state.gossiped[i, num_arms + arm] += 0.5 * plan.share[i]",
    ),
    "GSE does not tell what it dropped": (
        "simulation/exchange.py",
        "                if eligible[i, k] != eligible[j, k]:\n",
        "                if False:\n",
    ),
    "Fed1-UCB drops too early": ("rules/radius.py", "4.0 * log_horizon", "0.5 * log_horizon"),
    "Dist-UCB without the degree": ("rules/radius.py", "return 3.0 / (degree * n)", "return 3.0 / n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name, tmp_path):
    file, before, after = MUTANTS[name]
    for folder in ("src", "tests"):  # whole, so that nothing compiled before or after is taken for the mutant's
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / "src" / "fedbandit" / file
    text = target.read_text()
    assert before in text, "the mutant no longer fits the code"
    target.write_text(text.replace(before, after))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{w}" for w in WATCHERS)],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src"), "PYTEST_XDIST_WORKER": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    noticed = re.findall(r"^FAILED tests/(\S+)", ran.stdout, re.MULTILINE)
    print(f"\n{name}: {', '.join(noticed)}")  # noqa: T201
    assert ran.returncode == 1, ran.stdout[-2000:]
    assert noticed
