"""One live site.

``core`` is the site itself, without I/O; ``disk`` keeps what must survive, ``gossip`` talks to neighbours, ``http`` to
the application. ``config`` reads a site's file, ``runtime`` runs the agent, ``serve`` runs it behind its HTTP server,
``client`` is for applications. Nothing here imports the simulator, NumPy or Numba: an agent starts fast and stays
small.
"""
