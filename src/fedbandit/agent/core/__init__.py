"""The site as a pure state machine: events in, records and messages out. No I/O, clock or randomness of its own.

``federation`` holds the terms all sites agree on, ``site`` the state machine, ``records`` what it stores, ``messages``
what neighbours exchange. ``memory_network`` runs a whole federation in memory, with faults, for tests.
"""
