"""What one agent does in one round, written once.

Here belong pure functions on numbers and rows of numbers: no I/O, no clock, no randomness (draws are
arguments), no import but ``math`` and each other. They run as they stand on lists or arrays; the
simulator compiles the very same functions (``fedbandit.simulation.compiled``). Read them beside the paper:

* ``choose``  Algorithm 1, lines 6-14: lagging arms, beliefs, the arm of this round
* ``radius``  Lemmas 4 and 6: how far an estimate may be off
* ``mean``    Algorithms 2 and 3: an agent's own sample mean, exact or with private noise
* ``gossip``  Algorithm 1, lines 5 and 17-22: what neighbours do to each other's numbers

and beyond it:

* ``batch``   a private mean with few releases and no horizon
* ``kl``      an index by divergence for rewards in [0, 1]
* ``flow``    the average of two neighbours, kept so that lost messages do no harm

Lines of an algorithm are counted with its "Initialization" as line 1 and each "else" and "end" as a line.
"""
