"""The formulas of one agent in one round, each written once.

Pure functions on numbers and rows of numbers: no I/O, no clock, no randomness (draws are arguments), no import but
``math`` and each other. They run as they stand on lists or arrays; the simulator compiles the very same functions
(``fedbandit.engine.compiled``). Read them beside the paper:

* ``choose``  Algorithm 1, lines 6-14: lagging arms, beliefs, the arm of this round
* ``radius``  Lemmas 4 and 6: confidence radii
* ``mean``    Algorithms 2 and 3: an agent's own sample mean, exact or private
* ``gossip``  Algorithm 1, lines 5 and 17-22: counts and averages between neighbours

and beyond it:

* ``batch``   a private mean with few releases and no horizon
* ``proved``  a confidence radius that holds on every network
* ``kl``      a divergence index for rewards in [0, 1]
* ``flow``    the average of two neighbours, robust against lost messages
* ``releases`` what each agent has published, passed on as it is
* ``off_policy``, ``evaluation_sums``  what another policy would have gained, from a log or from noisy sums of sites
* ``strata``  what all releases say of an arm in each stratum: a hierarchical model

Lines of an algorithm are counted with its "Initialization" as line 1 and each "else" and "end" as a line.
"""
