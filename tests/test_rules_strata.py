"""The model of strata: posteriors from records against the joint normal distribution of everything, in NumPy."""

import numpy as np
import pytest

from fedbandit.rules import strata as rule
from literal_strata import joint

C = 1 / 12


def scratch(size):
    return [[0.0] * size for _ in range(rule.VECTORS)], [
        [[0.0] * size for _ in range(size)] for _ in range(rule.MATRICES)
    ]


def random_releases(source, size, count):
    """(weights, value above 1/2, variance) of so many releases: of one cell, or pooled."""
    found = []
    for _ in range(count):
        is_cell = source.random() < 0.5
        weights = np.eye(size)[source.integers(size)] if is_cell else source.dirichlet(np.ones(size))
        found.append((weights, source.normal(0, 0.3), source.uniform(0.001, 0.1)))
    return found


def record_of(releases, weights):
    size = len(weights)
    scores, precisions = [0.0] * size, [[0.0] * size for _ in range(size)]
    for w, y, v in releases:
        rule.add_release(scores, precisions, w.tolist(), y, v, size)
    row = [float(len(releases)), *weights, *scores, *(precisions[s][r] for s in range(size) for r in range(size))]
    assert len(row) == rule.length_of_record(size)
    return row


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("by_rate", [False, True])
def test_records_give_the_posterior_of_the_joint_normal_distribution(size, by_rate):
    """Sites of all kinds: many releases, few, none, one that was never heard; equal weights, and measured ones."""
    source = np.random.default_rng(size)
    sites = [random_releases(source, size, n) for n in (9, 3, 0, 1, 5)]
    versions = [4, 1, 2, 1, 0]
    weights = source.uniform(0.2, 2.0, (5, size)) if by_rate else np.ones((5, size))
    records = [record_of(each, row.tolist()) for each, row in zip(sites, weights, strict=True)]
    sites = [each if version else [] for each, version in zip(sites, versions, strict=True)]
    if by_rate:  # the one that was not heard weighs as much as the others, on average
        weights[4] = weights[:4].mean(axis=0)
        squares = (weights[:4] ** 2).mean(axis=0)
    shares = weights / weights.sum(axis=0)
    vectors, matrices = scratch(size)
    evidence, means = [0.0] * rule.GRID, [[0.0] * rule.GRID for _ in range(size)]
    variances = [[0.0] * rule.GRID for _ in range(size)]
    told = (0.0, 0.0) if by_rate else (5.0, 5.0)
    heard = rule.posterior_of_arm(records, versions, *told, vectors, matrices, evidence, means, variances)
    assert heard == 3
    densities = []
    for i, tg in enumerate(rule.SITE_SCALES):
        for j, td in enumerate(rule.STRATUM_SCALES):
            g = i * len(rule.STRATUM_SCALES) + j
            theta, cov, density = joint(sites, shares, td, tg)
            if by_rate:  # the mean square of weights, and not the square of the mean, stands for who was not heard
                room = (squares - weights[4] ** 2) / weights.sum(axis=0) ** 2
                cov = cov + np.diag(room * (tg**2 + C))
            np.testing.assert_allclose([means[s][g] for s in range(size)], theta, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose([variances[s][g] for s in range(size)], np.diag(cov), rtol=1e-6)
            densities.append(density)
    np.testing.assert_allclose(np.array(evidence) - evidence[0], np.array(densities) - densities[0], atol=1e-6)


def test_scales_are_chosen_by_their_evidence():
    source = np.random.default_rng(3)
    evidence = source.normal(0, 2, (4, rule.GRID)).tolist()
    weights = [0.0] * rule.GRID
    matters = rule.choose_scales(evidence, [1, 0, 2, 1], weights)
    prior = np.outer(rule.SITE_PRIOR, rule.STRATUM_PRIOR).ravel()
    expected = prior * np.exp(np.array(evidence)[[0, 2, 3]].sum(axis=0))
    expected /= expected.sum()
    np.testing.assert_allclose(weights, expected)
    big = [tg > 0.03 or td > 0.03 for tg in rule.SITE_SCALES for td in rule.STRATUM_SCALES]
    assert matters == pytest.approx(expected[big].sum())
    rule.choose_scales(evidence, [0, 0, 0, 0], weights)
    np.testing.assert_allclose(weights, prior)
    means, variances = source.normal(0, 1, rule.GRID), source.uniform(0.1, 1, rule.GRID)
    mean = rule.mean_over_scales(means.tolist(), weights)
    variance = rule.variance_over_scales(means.tolist(), variances.tolist(), weights, mean)
    assert mean == pytest.approx(prior @ means)
    assert variance == pytest.approx(prior @ (variances + means**2) - (prior @ means) ** 2)


@pytest.mark.parametrize("size", [1, 5, 24])
def test_inverses(size):
    source = np.random.default_rng(size)
    root = source.normal(size=(size, size + 3))
    a = root @ root.T + 0.01 * np.eye(size)
    inverse = np.zeros((size, size))
    log_det = rule.invert(a.copy(), inverse, size)
    np.testing.assert_allclose(inverse @ a, np.eye(size), atol=1e-8)
    assert log_det == pytest.approx(np.linalg.slogdet(a)[1])


def test_cells_are_released_alone_the_earlier_the_more_strata_matter():
    assert rule.cell_least(0.0, 12) == 12.0
    assert rule.cell_least(1.0, 18) == 4.5
    assert rule.cell_least(0.5, 12) == pytest.approx(6.0)
