"""One live site: an agent process beside an application.

``core`` is the site itself, without I/O; ``disk`` makes it durable, ``gossip`` talks to neighbours, ``http`` to
the application. ``config`` reads a site's file, ``runtime`` runs the agent, ``serve`` runs it behind its HTTP server,
``client`` is for applications. Nothing here imports the simulator, NumPy or Numba, so an agent starts fast and stays
small.
"""
