"""The site as a pure state machine: events in, records and messages out. No I/O, clock or randomness of its own.

``federation`` holds the terms that all sites agree on, ``site`` the state machine, ``records`` what it stores,
``bulletin`` what it tells the others, ``board`` what they have told.
"""
