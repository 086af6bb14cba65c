"""The parts of the benchmarks that compute and write; nothing is measured and no peer is installed."""

import sys
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "peer_workers")]

import task  # noqa: E402
import with_pure_python  # noqa: E402

import daily_looks  # noqa: E402
import instructions  # noqa: E402
import peer_environments  # noqa: E402
import peers  # noqa: E402
import readme_tables  # noqa: E402
from growth import GROWTHS, Case, exponent  # noqa: E402


def test_a_script_replaces_its_own_part_of_the_readme_only():
    text = "a\n<!-- x: written by a script -->\nold\n<!-- end of x -->\nb <!-- y: written by a script -->"
    new = readme_tables.replaced(text, "x", "new")
    assert new == text.replace("old", "\nnew\n")
    assert readme_tables.replaced(new, "x", "new") == new
    for broken in (text.replace("end of x", "end"), text + text, text.replace("x: written", "z: written")):
        with pytest.raises(ValueError, match="must have"):
            readme_tables.replaced(broken, "x", "new")


def test_the_readme_has_the_place_of_every_table():
    text = readme_tables.README.read_text()
    for name in ("peers", "live peers", "growth", "starts", "first calls"):
        assert "| new |" in readme_tables.replaced(text, name, readme_tables.markdown(["new"], [["1"]]))


def test_the_readme_names_every_script():
    text = readme_tables.README.read_text()
    assert [path.name for path in (ROOT / "benchmarks").glob("*.py") if f"`{path.name}`" not in text] == []


def test_instructions_of_a_pull_are_a_long_run_less_a_short_one(tmp_path: Path):
    head = "version: 1\ncreator: callgrind\npart: 1\n\nevents: Ir Bc Bcm Bi Bim\nsummary: 7 7 7\n\nfn=(1) eat: 5\n0 3\n"
    counts = ["1000 50 7", "200001000 4000050 100007 0 400000", "5 5 5 5 5", "5 5 5 5 5"]
    files = [tmp_path / f"counts.{number}" for number in range(4)]
    for path, totals in zip(files, counts, strict=True):
        path.write_text(f"{head}totals: {totals}\n")
    found = instructions.per_pull(["one", "other"], files)
    assert found["one"] == {"Ir": 1000.0, "Bc": 20.0, "Bcm": 0.5, "Bi": 0.0, "Bim": 2.0}
    assert found["other"] == dict.fromkeys(found["one"], 0.0)


def test_instructions_are_divided_by_the_agents_that_play():
    import speed_worker

    assert instructions.AGENTS == speed_worker.AGENTS


def test_numbers_have_three_digits():
    values = (0.0123, 0.999, 1.0, 9.999, 12.34, 999.4, 999.7, 12_345, 999_700, 10_234_000, 2.4e10)
    shown = ["0.0123", "0.999", "1.00", "10.0", "12.3", "999", "1.00 k", "12.3 k", "1.00 M", "10.2 M", "24.0 G"]
    assert list(map(readme_tables.rounded, values)) == shown
    assert readme_tables.rounded(12_345, letters=False) == "12,300"
    assert readme_tables.spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)"


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="has not 2 cells"):
        readme_tables.markdown(["a", "b"], [["1"]])


def test_ratios_are_taken_within_a_run():
    """A slow run slows both down; the ratio of medians over runs would not notice."""
    ours, other = peers.Peer("ours", ""), peers.Peer("other", "")
    for mood in (1.0, 10.0, 0.1):
        about = {"policy": "UCB1", "versions": {"x": "1"}, "regret": 300.0}
        ours.runs.append({**about, "pulls": 40, "cpu": mood})
        other.runs.append({**about, "pulls": 10, "cpu": mood})
    assert peers.cells(ours, other)[4] == "4.00 (4.00 to 4.00)"
    assert "10.0 (1.00 to 100" in peers.cells(ours, other)[3]


def test_a_peer_that_failed_has_a_row():
    why = "does not install: no such thing"
    rows = [peers.Peer("ours", "", failed="fails: x"), peers.Peer("absent", "", failed=why)]
    assert peers.simulator_table(rows).splitlines()[-1] == f"| absent |  |  | {why} |  |  |"


def test_why_pip_failed_is_told_without_addresses():
    errors = "WARNING: x\nERROR: Could not find it\nERROR: No matching distribution for x at https://a.b/c\n"
    assert peer_environments.reason(errors) == "No matching distribution for x at an index"
    assert peer_environments.reason("") == "pip failed"


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found(power):
    values = [10.0, 30.0, 100.0, 300.0, 1000.0]
    assert exponent(values, [3.0 * value**power for value in values]) == pytest.approx(power)


def test_growth_changes_one_thing_at_a_time():
    for growth in GROWTHS:
        changed = [{k for k in vars(case) if vars(case)[k] != vars(growth.base)[k]} for case in growth.cases()]
        assert len(changed) == 5
        assert set().union(*changed) == {growth.field}
        assert [getattr(case, growth.field) for case in growth.cases()] == list(growth.values)
    assert Case().agents == Case().arms == 10


def test_every_peer_has_a_worker_and_a_list_of_exact_versions():
    for peer in peers.peers():
        if peer.environment == "jax_bandits":
            continue  # no index has it yet
        assert (peer_environments.WORKERS / peer.script).exists()
        if peer.environment:
            wanted = (peer_environments.WORKERS / "requirements" / f"{peer.environment}.txt").read_text().split()
            assert all(line.count("==") == 1 and "/" not in line for line in wanted)


def test_the_task_counts_regret_and_gives_rewards_of_the_chosen_arm():
    source, told = Random(1), []  # noqa: S311
    lost = task.one_by_one(lambda: source.choice([2, 9]), lambda arm, reward: told.append((arm, reward)), 0)
    pulls = sum(arm == 2 for arm, _ in told)
    assert (len(told), lost) == (task.HORIZON, pytest.approx(0.7 * pulls))
    # Five thousand rewards of standard deviation 1: beyond 0.1 is 7 standard errors, a false alarm in 1e11.
    assert sum(reward for arm, reward in told if arm == 2) / pulls == pytest.approx(0.2, abs=0.1)


def test_the_yardstick_plays_ucb1():
    """About what all rows of UCB1 have, 340: uniform play loses 4500, and a greedy start that gets stuck far more."""
    assert 200 < with_pure_python.play(5, 1) < 500


def test_daily_looks_play_federations_and_count_false_alarms():
    """20 federations with equal arms; of so few 9 false alarms have a probability below 1e-6 if 5 % is true."""
    courses = daily_looks.courses(daily_looks.SETTINGS[0], 20, seed=1)
    assert len(courses) == 20
    assert sum(it.false_alarm is not None for it in courses) < 9
    assert all(it.found is None for it in courses), "of equal arms none is the best"
    assert any(it.missed_daily > 0.0 for it in courses)
