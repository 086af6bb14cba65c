"""Simulations on NVIDIA GPUs, by numba-cuda: the same pages and phases as on the CPU.

``engine`` runs plans from checkpoint to checkpoint (``books`` keeps their records, ``arrays`` are what they read).
``warp`` and ``open`` are the kernels, ``launch_warp`` and ``launch_open`` start them, ``loop`` is the order of events
in both. ``memory``, ``tables`` and ``teams`` are what compiled pages need of a GPU.
"""
