"""Many trials, fast: the rules of ``fedbandit.rules`` run a billion times."""
