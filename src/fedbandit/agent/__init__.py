"""One live site: an agent process beside an application.

``core`` is the site itself, without I/O; ``disk`` makes it durable, ``gossip`` talks to neighbours, ``http`` to the
application. ``process`` reads a site's file and runs the agent; ``client`` is for applications. Nothing here imports
the simulator, NumPy or Numba, so an agent starts fast and stays small.
"""
