from gpu_try import *
R.MAX_REGISTERS = int(sys.argv[3]) or None; C._NEAR_BYTES = int(sys.argv[4])
path = Problem.random(10, 10, "path", seed=0)

go("gpu", path, P[sys.argv[1]], 2000, int(sys.argv[2]))
