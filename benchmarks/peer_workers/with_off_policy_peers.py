"""What Open Bandit Pipeline and Vowpal Wabbit read in files of ``fedbandit evaluate``; runs in their environment.

    python with_off_policy_peers.py estimates FILE.npz   its estimates, from a dictionary as bandit_feedback makes it
    python with_off_policy_peers.py labels FILE ARMS     the costs of each line as Vowpal Wabbit has read them
    python with_off_policy_peers.py values FILE ARMS     what it says of a policy that always gives each arm, by ips
    python with_off_policy_peers.py data FILE.npz ROWS   its own data and its estimates on them; 0: all rows

The first three print JSON.
"""

import json
import sys
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

LOGS = [(by, campaign) for by in ("random", "bts") for campaign in ("all", "men", "women")]


@cache
def pipeline() -> tuple[Any, Any]:
    """Its packages of estimators and of data, without that of policies, which computes with PyTorch."""
    torch: Any = ModuleType("torch")
    torch.Tensor = torch.tensor = type("Tensor", (), {})  # ``obp.utils`` names them
    sys.modules["torch"] = torch
    whole = ModuleType("obp")
    whole.__path__ = list(find_spec("obp").submodule_search_locations)  # its __init__ is not executed
    sys.modules["obp"] = whole
    import obp.dataset
    import obp.ope

    return obp.ope, obp.dataset


def estimates(feedback: Any) -> dict[str, float]:
    """Inverse propensity scoring, self-normalised, doubly robust."""
    ope, _ = pipeline()
    given = {name: feedback[name] for name in ("action", "reward", "pscore", "position", "action_dist")}
    guesses = feedback["estimated_rewards_by_reg_model"]
    return {
        "ips": float(ope.InverseProbabilityWeighting().estimate_policy_value(**given)),
        "snips": float(ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**given)),
        "dr": float(ope.DoublyRobust().estimate_policy_value(**given, estimated_rewards_by_reg_model=guesses)),
    }


def data(rows: int) -> dict[str, Any]:
    """The first rows of each log of the Open Bandit Data (all: 0), a policy, guesses, and the pipeline's estimates.

    The policy gives an item the more often, the more clicks it got in the log, at each of three positions; the guesses
    are the items' rates of clicks.
    """
    import numpy as np

    _, dataset = pipeline()
    found: dict[str, Any] = {}
    for by, campaign in LOGS:
        logged = dataset.OpenBanditDataset(by, campaign).obtain_batch_bandit_feedback()
        part = {name: logged[name][: rows or None] for name in ("action", "reward", "pscore", "position")}
        shape = logged["n_actions"], 3
        shown, clicks = np.zeros(shape), np.zeros(shape)
        np.add.at(shown, (part["action"], part["position"]), 1.0)
        np.add.at(clicks, (part["action"], part["position"]), part["reward"])
        policy = (clicks + 0.1) / (clicks + 0.1).sum(axis=0)
        rates = (clicks + 0.01) / (shown + 1.0)
        count = len(part["action"])
        full = {name: np.broadcast_to(it, (count, *shape)) for name, it in (("p", policy), ("q", rates))}
        said = estimates(part | {"action_dist": full["p"], "estimated_rewards_by_reg_model": full["q"]})
        kept = {"action": np.int16, "position": np.int8, "reward": np.int8, "pscore": np.float64}
        kept = {name: part[name].astype(kind) for name, kind in kept.items()}
        answers = {name: np.float64(value) for name, value in said.items()}
        found |= {f"{by} {campaign} {name}": it for name, it in (kept | answers).items()}
        found |= {f"{by} {campaign} policy": policy, f"{by} {campaign} guesses": rates}
    return found


def labels(path: str, arms: int) -> list[list[list[float]]]:
    """Of each line the actions that it allows, with cost and probability; of those without a cost null."""
    from vowpalwabbit import LabelType, Workspace, pyvw

    vw = Workspace(f"--cb {arms} --quiet")
    read: list[list[list[float]]] = []
    with open(path, encoding="ascii") as lines:  # noqa: PTH123  # a worker imports little
        for line in lines:
            example = vw.parse(line.rstrip("\n"), LabelType.CONTEXTUAL_BANDIT)
            costs = pyvw.CBLabel.from_example(example).costs
            read.append([[it.action, it.cost, it.probability] for it in costs])
            vw.learn(example)
            vw.finish_example(example)
    return read


def values(path: str, arms: int) -> list[float]:
    """The mean reward of each arm, by Vowpal Wabbit's own inverse propensity scoring."""
    from vowpalwabbit import Workspace

    found: list[float] = []
    for arm in range(1, arms + 1):
        vw, count = Workspace(f"--cb {arms} --eval --cb_type ips --quiet"), 0
        with open(path, encoding="ascii") as lines:  # noqa: PTH123
            for line in lines:
                example = vw.parse(f"{arm} {line}")  # with --eval the policy's action comes first
                vw.learn(example)
                vw.finish_example(example)
                count += 1
        found.append(-vw.get_sum_loss() / count)
    return found


if __name__ == "__main__":
    what, file, *more = sys.argv[1:]
    if what == "labels":
        print(json.dumps(labels(file, int(more[0]))))
    elif what == "values":
        print(json.dumps(values(file, int(more[0]))))
    else:
        import numpy as np

        if what == "estimates":
            with np.load(file) as feedback:
                print(json.dumps(estimates(dict(feedback))))
        else:
            np.savez_compressed(file, **data(int(more[0])))
