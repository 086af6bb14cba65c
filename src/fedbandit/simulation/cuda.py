"""The GPU engine: all trials of a plan in flight at once, played from checkpoint to checkpoint by kernels."""
