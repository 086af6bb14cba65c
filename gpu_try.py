import sys, time, traceback, warnings
import numpy as np
for name, f in (("row_stack", np.vstack), ("in1d", lambda a, b: np.isin(a, b)), ("trapz", getattr(np, "trapezoid", None))):
    if not hasattr(np, name): setattr(np, name, f)
warnings.simplefilter("ignore")
T0 = time.time()
def say(*a): print("%6.1f" % (time.time() - T0), *a, flush=True)
from numba import cuda
say("numba", __import__("numba").__version__, cuda.is_available(), cuda.get_current_device().name)
from fedbandit import *
from fedbandit.simulation import cuda as C, cpu
from fedbandit.simulation.run import check_call, _truths
say("imported")
P = {"g": GossipUCB(), "f": FedUCB(1.0, assume_sensitivity=1.0), "t": FedBatch(1.0, assume_sensitivity=1.0), "c": CentralUCB(), "l": LocalUCB(), "e": GSE(), "1": Fed1UCB(), "d": DistUCB(), "a": AdaPUCB(1.0, assume_sensitivity=1.0), "s": FedBatch(1.0, index="ucb", radius="safe", assume_sensitivity=1.0), "o": CoopUCB2()}
def go(engine, problem, pols, T, trials, checkpoints=None, keep="agents", threads=16):
    call = check_call(problem, pols, T, trials, 0, checkpoints or [T])
    t = time.time()
    args = [_truths(p) for p in call.problems], call.plans, call.times, call.trials, call.seed
    r = C.run_trials(*args, lambda n: 0, keep) if engine == "gpu" else cpu.run_trials(*args, threads, lambda n: 0, keep)
    return r, time.time() - t
def compare(label, problem, pol, T=2000, trials=64):
    try:
        g, tg = go("gpu", problem, pol, T, trials, [10, 100, T])
        c, tc = go("cpu", problem, pol, T, trials, [10, 100, T])
        g, c = g[0], c[0]
        same = (g.pulls == c.pulls).all(axis=(1, 2, 3))
        say("compare", label, "trials with equal pulls", same.mean(), "regret", g.regret[:, :, -1].mean(), c.regret[:, :, -1].mean(), "theta err", abs(g.theta_error - c.theta_error).max(), "messages", (g.messages == c.messages).all(), "lagging", (g.lagging == c.lagging).mean(), "t %.1f %.1f" % (tg, tc))
    except Exception as e:
        say("FAILED", label, repr(e)[:200])
from fedbandit.simulation import cuda_rounds as R
def fresh():
    R.warp_kernel.cache_clear()
def speed(label, problem, pols, T, trials, checkpoints=None):
    try:
        go("gpu", problem, pols, 50, trials)
        best = min(go("gpu", problem, pols, T, trials, checkpoints)[1] for _ in range(2))
        n = len(pols) if isinstance(pols, (list, dict)) else 1
        say("speed", label, trials, T, "%.3f s  %.3g pulls/s" % (best, n * trials * T * problem.num_agents / best))
    except Exception as e:
        say("FAILED", label, repr(e)[:200])
