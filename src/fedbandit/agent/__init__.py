"""One live site: what it does with decisions, rewards and neighbours, and what it keeps on disk.

``federation`` says what all sites must agree on, ``site`` is the state machine without I/O, ``records`` and ``journal``
are what survives, ``messages`` what neighbours exchange, ``memory`` a network in memory, for tests. ``config`` is a
site's file, ``tls`` and ``certs`` read and make its certificates. Nothing here imports the simulator,
NumPy or Numba: an agent must start fast and stay small.
"""
