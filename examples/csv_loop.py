"""Asks an agent for an arm for each row of a table, and reports the outcomes under these arms, in batches.

Each row is a patient, and has the outcome under every arm. So the example can look up any arm; in real life only the
outcome of the chosen arm is known. Make a table, then run the loop:

    python examples/csv_loop.py --make patients.csv
    python examples/csv_loop.py patients.csv --agent http://127.0.0.1:8400

A batch has a key, made of the run's name and its first row. So a run that was interrupted may be started again under
the same name (give it one with --run): no patient gets a second decision, and no outcome counts twice.
"""

import argparse
import csv
import random
import secrets
import sys

from fedbandit import AgentError, Client
from fedbandit.agent.client import Forbidden
from fedbandit.checks import InvalidArgument


def make_table(path, arms, rows, seed=1):
    """Patients whose outcome is 0 or 1 under each arm; the last arm is the best."""
    draw = random.Random(seed)  # noqa: S311 - an invented table
    with open(path, "w", newline="") as file:  # noqa: PTH123
        table = csv.writer(file)
        table.writerow(["patient", *arms])
        for patient in range(1, rows + 1):
            chances = [0.2 + 0.6 * (k + 1) / len(arms) for k in range(len(arms))]
            table.writerow([patient, *(int(draw.random() < chance) for chance in chances)])


def run(path, client, name, batch):
    """Ask and report for every row; return the number of patients and the sum of outcomes for each arm."""
    arms = client.federation().arms
    seen = {arm: [0, 0.0] for arm in arms}
    with open(path, newline="") as file:  # noqa: PTH123
        table = csv.DictReader(file)
        missing = [arm for arm in arms if arm not in (table.fieldnames or [])]
        if missing:  # before the first decision: each should get its reward
            raise InvalidArgument(
                "table", str(path), f"a CSV with a column for each arm; missing: {', '.join(missing)}"
            )
        rows = list(table)
    for first in range(0, len(rows), batch):
        some = rows[first : first + batch]
        decisions = client.decide_many(len(some), eligible=arms, key=f"{name} {first}")  # not one added meanwhile
        outcomes = [float(row[decision.name]) for row, decision in zip(some, decisions, strict=True)]
        for said in client.rewards(zip(decisions, outcomes, strict=True)):
            if said.code not in (None, "too_late"):
                raise AgentError(said.message, said.code)
        for decision, outcome in zip(decisions, outcomes, strict=True):
            seen[decision.name][0] += 1
            seen[decision.name][1] += outcome
    return seen


def show(seen, state):
    """Print the outcomes here beside what the agent and its neighbours have learnt."""
    width = max(len("arm"), *(len(name) for name in seen))
    print(f"{'arm':<{width}}  patients  outcome here  estimate over all sites")
    estimates = {} if state is None else {arm.name: arm.estimate for arm in state.arms}
    for name, (patients, total) in seen.items():
        here = f"{total / patients:.3f}" if patients else "-"
        estimate = "-" if estimates.get(name) is None else f"{estimates[name]:.3f}"
        print(f"{name:<{width}}  {patients:>8}  {here:>12}  {estimate:>23}")


def main():
    """Make a table, or run over one."""
    parser = argparse.ArgumentParser(description="Ask an agent for every row of a table.")
    parser.add_argument("table", nargs="?", help="CSV with a column for each arm of the federation")
    parser.add_argument("--agent", default="http://127.0.0.1:8400", metavar="URL")
    parser.add_argument("--token", help="the agent's token, if it has one")
    parser.add_argument("--make", metavar="CSV", help="write a table for this agent's arms, and stop")
    parser.add_argument("--rows", type=int, default=1000, help="number of rows to write with --make")
    parser.add_argument("--batch", type=int, default=20, help="patients at once; the agent learns between batches")
    parser.add_argument("--run", default=secrets.token_hex(8), help="name of the run, to go on with one")
    options = parser.parse_args()
    if (options.table is None) == (options.make is None):
        parser.error("name a table, or --make one")
    with Client(options.agent, options.token, timeout=10.0, deadline=30.0) as client:  # nobody waits at a web page
        if options.make:
            arms = client.federation().arms
            make_table(options.make, arms, options.rows)
            print(f"wrote {options.make}: {options.rows} patients, outcomes under {', '.join(arms)}")
        else:
            seen = run(options.table, client, options.run, options.batch)
            try:
                state = client.state()
            except Forbidden:  # an application's token may not look at estimates
                state = None
            show(seen, state)
            if state is not None and state.decisions.waiting:
                window = state.federation.reward_window
                print(f"{state.decisions.waiting} outcomes do not count yet: their reward window is {window:g} s")


if __name__ == "__main__":
    try:
        main()
    except (OSError, InvalidArgument) as error:  # a file, an option
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except AgentError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
