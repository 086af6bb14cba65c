"""Simulations on NVIDIA GPUs, by numba-cuda: the same pages, phases and order of events as on the CPU.

``engine`` runs compiled policies from checkpoint to checkpoint. ``warp`` and ``blocks`` are the kernels, ``device`` is
what they share, ``memory`` where the numbers of an agent lie.
"""
