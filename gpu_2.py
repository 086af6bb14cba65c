from gpu_try import *
path = Problem.random(10, 10, "path", seed=0)
def go1(p, T, label):
    fresh(); speed(p + " " + label, path, P[p], T, 12672)
for near in (376, 420):
    C._NEAR_BYTES = near
    for regs in (None, 128):
        R.MAX_REGISTERS = regs; go1("g", 40000, "near %s regs %s" % (near, regs))
C._NEAR_BYTES = 376
for regs in (None, 128):
    R.MAX_REGISTERS = regs; go1("f", 20000, "376 regs %s" % regs); go1("t", 20000, "376 regs %s" % regs)
C._NEAR_BYTES = 300
go1("f", 20000, "300 128"); go1("t", 20000, "300 128")
C._NEAR_BYTES = 376
for p in "gft": compare(p, path, P[p], 3000, 6000)
R.MAX_REGISTERS = None; fresh()
C._NEAR_BYTES = 1000
for p in "gft": speed(p + " few, near 1000", path, P[p], 100000, 400)
four = {"1": FedUCB(1.0, assume_sensitivity=1.0), "2": FedUCB(2.0, assume_sensitivity=1.0), "5": FedUCB(5.0, assume_sensitivity=1.0), "inf": GossipUCB()}
speed("figure 2b", path, four, 1000000, 100, 200)
import cProfile, pstats
pr = cProfile.Profile(); pr.enable(); go("gpu", path, four, 1000000, 100, 200); pr.disable()
pstats.Stats(pr).sort_stats("tottime").print_stats(14)
