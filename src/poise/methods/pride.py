"""PriDe: divide by the prior of each prompt position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.utils import check_random_state

from poise.methods._validation import check_probabilities, class_names, numbers, uniform_zero_rows
from poise.methods.calibration import Reweighting, reciprocal

FORMS = ("paper", "official")
FLOOR = 1e-10


class PriDe(Reweighting):
    """PriDe (Zheng et al., 2024): P_corr(k) proportional to P_raw(k) / prior(k), k a *position* in the prompt.

    Here, and only here, a column is the position at which the prompt lists a label, not a class: under permutation
    pi, column k holds the probability of the label listed k-th, whose class is pi(k). So a column of P under the
    reversed label order means another class than under the natural order, and

    >>> position = PriDe().fit(np.stack([P_natural, P_reversed])).predict(P_reversed)  # doctest: +SKIP
    >>> label = permutation[position]  # doctest: +SKIP

    Transductive: the prior comes from unlabelled rows, in the paper's form from the whole test set.

    Parameters
    ----------
    form : {"paper", "official"}, default "paper"
        "paper" (position paper, G.3): prior(k) = mean over rows and permutations of P(k | x, pi).
        "official" (Zheng et al.): each of a few rows gives softmax_k of the mean over permutations of
        log P(k | x, pi), and the prior is the mean of these. With all cyclic permutations, this is exact for any
        rows if P(k | x, pi) is proportional to prior(k) times a score of the content at k; the paper's form is
        exact only where the contents balance in the mean.
    fraction : float, default 0.05
        Share of rows, in (0, 1], drawn for the official form's prior; one at least. The paper's form uses all.
    classes : sequence, optional
        What `predict` returns for each position, such as the class names in the order of one prompt; without it,
        the position.
    random_state : int, RandomState or None, default 1
        Seed of the official form's draw.

    Attributes
    ----------
    prior_ : (N,) float64 array
        Prior of each position; sums to one if the rows of P do.
    weights_ : (N,) float64 array
        1 / prior, the largest scaled to 1.
    classes_ : (N,) array
        What each column stands for.
    n_features_in_ : int
        Columns seen.

    References
    ----------
    Zheng et al., "Large Language Models Are Not Robust Multiple Choice Selectors", ICLR 2024.
    """

    transductive: ClassVar[bool] = True

    def __init__(
        self,
        form: str = "paper",
        fraction: float = 0.05,
        classes: Sequence[Any] | None = None,
        random_state: int | np.random.RandomState | None = 1,
    ) -> None:
        self.form = form
        self.fraction = fraction
        self.classes = classes
        self.random_state = random_state

    def fit(self, P: ArrayLike, y: object = None) -> Self:  # noqa: ARG002
        """Learn the prior of each position.

        Parameters
        ----------
        P : (n_permutations, M, N) or (M, N) array
            Probabilities by prompt position: of the same rows under several label orders, or under one. The official
            form takes all N cyclic shifts; the paper's takes the natural and the reversed order.
        y : None
            Not used.

        Returns
        -------
        PriDe

        Raises
        ------
        ValueError, TypeError
            For anything but finite, non-negative numbers (not all zero) of that shape, or a parameter out of its
            range.
        """
        if self.form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, found {self.form!r}")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must be above 0 and at most 1, found {self.fraction!r}")
        stack = numbers(P)
        rows = check_probabilities(self, stack.reshape(-1, stack.shape[2]) if stack.ndim == 3 else P, reset=True)
        probabilities = uniform_zero_rows(rows).reshape(stack.shape if stack.ndim == 3 else (1, *stack.shape))
        self.classes_ = class_names(self.classes, self.n_features_in_)
        self.prior_ = self._official(probabilities) if self.form == "official" else probabilities.mean(axis=(0, 1))
        self.weights_ = reciprocal(self.prior_)
        return self

    def _official(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        n_rows = probabilities.shape[1]
        drawn = check_random_state(self.random_state).permutation(n_rows)[: max(1, int(self.fraction * n_rows))]
        logs = np.log(np.maximum(probabilities[:, drawn], FLOOR)).mean(axis=0)
        prior: NDArray[np.float64] = softmax(logs, axis=1).mean(axis=0)
        return prior
