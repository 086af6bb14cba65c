"""What protects people, and what attacks it.

``noise`` draws, ``budget`` keeps the ledger, ``mechanism`` turns rewards into releases: the path of real data,
which never touches the simulator. ``audit`` measures any mechanism; ``attacks``, ``whole_agent`` and ``broken`` are
what it is pointed at, ``suite`` the table that ``fedbandit audit`` prints.
"""
