"""Draws docs/images/shares.png from the result of ``fedbandit run experiments/shares.toml``: regret, its linear part.

``python benchmarks/shares_figure.py out/shares/sweep.nc docs/images/shares.png``
"""

import sys

import matplotlib.pyplot as plt
import xarray as xr

HORIZON, SUM_OF_GAPS = 1e5, 1.384  # of the file; the gaps of its 20 instances, on average


def main(source: str, target: str) -> None:
    """Both axes logarithmic; the regret without shares is a line across."""
    table = xr.load_dataset(source)
    shares = table["shares.least_share"].values.astype(float)
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for policy, colour in zip(table["policy"].values, ("tab:blue", "tab:orange"), strict=True):
        regret = table["regret"].sel(policy=policy)
        means = regret.mean([d for d in regret.dims if d != "run"]).values
        axes.plot(shares[1:], means[1:], "o-", color=colour, label=str(policy))
        axes.axhline(means[0], color=colour, linestyle=":", linewidth=1)
    axes.plot(shares[1:], HORIZON * SUM_OF_GAPS * shares[1:], "--", color="grey", label="linear part of the floors")
    axes.set(xscale="log", yscale="log", xlabel="least share of every arm", ylabel="regret per agent at T = 100,000")
    axes.legend(title="dotted: without shares")
    figure.savefig(target, dpi=110)


main(*sys.argv[1:])
