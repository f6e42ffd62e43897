"""A small linear adapter on class probabilities, trained on a differentiable surrogate of the DNIP objective."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from poise.methods._validation import (
    ProbabilityInput,
    check_probabilities,
    class_names,
    label_indices,
    normalised,
    smoothing,
    warn_absent_classes,
)

if TYPE_CHECKING:
    import torch

    Rows = tuple[torch.Tensor, torch.Tensor]  # (M, N) probabilities and (M,) labels

FLOOR = 1e-10


class LinearAdapter(ProbabilityInput, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear adapter network (DNIP paper, Figure 5) on our surrogate of its objective.

    The paper trains "a single linear adapter network with adapter dimension of 64 towards the same objective as
    DNIP", which has no gradient. Ours is a residual N -> n_hidden -> N linear map of the probabilities p of a row,

        q = softmax(log p + (p D) U + b),

    which starts at q = p (U = 0, b = 0), and the objective with q in the place of hard predictions:

        Z = 1 - mean of q[true class] + beta * mean over pairs |A_i - A_j| - tau * sum_j PMI_j,

    where A_j is the mean of q_j over the rows of class j, and the counts in PMI_j (Eq. 7) are sums of q. Adam on
    all training rows at once; training stops early, and goes back to its best epoch, by Z on held-out rows.

    Parameters
    ----------
    n_hidden : int, default 64
        Adapter dimension.
    beta, tau : float, default 2.7 and 0.2
        Weights of the bias and PMI terms.
    mu : float or {"paper", "scaled"}, default "paper"
        Smoothing of the PMI term, in rows: "paper" is 4,000, "scaled" 4,000 M / 9,500 for the M rows of each part.
    learning_rate : float, default 1e-3
        Of Adam.
    max_epochs : int, default 500
        Steps at most.
    patience : int, default 30
        Steps without a better Z after which training stops.
    validation_fraction : float, default 0.05
        Share of rows, in [0, 1), held out at random for early stopping; where that is less than half a row, Z is of
        the training rows.
    random_state : int, RandomState or None, default 1
        Seed of the split and of the initial D.
    classes : sequence, optional
        Class names in column order; without them, classes are the column indices.

    Attributes
    ----------
    down_, up_, bias_ : (N, n_hidden), (n_hidden, N) and (N,) float64 arrays
        D, U and b. There are no class weights: the map differs from row to row.
    loss_ : float
        Z on the held-out rows at the best epoch.
    n_iter_ : int
        Steps taken.
    mu_ : float
        The smoothing used in training.
    classes_ : (N,) array
        Class names in column order.
    n_features_in_ : int
        Columns seen.

    Notes
    -----
    Needs torch, in `fit` only, on one thread. A class absent from a part keeps its column and leaves the bias term.
    """

    def __init__(
        self,
        n_hidden: int = 64,
        beta: float = 2.7,
        tau: float = 0.2,
        mu: float | str = "paper",
        learning_rate: float = 1e-3,
        max_epochs: int = 500,
        patience: int = 30,
        validation_fraction: float = 0.05,
        random_state: int | np.random.RandomState | None = 1,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.beta = beta
        self.tau = tau
        self.mu = mu
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.classes = classes

    def fit(self, P: ArrayLike, y: ArrayLike) -> Self:
        """Train the adapter on M labelled rows.

        Parameters
        ----------
        P : (M, N) array
            Class probabilities, N >= 2; each row is divided by its sum, and an all-zero row counts as uniform.
        y : (M,) array
            Column indices, or names among `classes`.

        Returns
        -------
        LinearAdapter

        Raises
        ------
        ValueError, TypeError
            For anything but a matrix of finite, non-negative numbers (not all zero), unknown labels, or a parameter
            out of its range.
        """
        import torch  # two seconds that only those who train the adapter should wait

        self._check_parameters()
        probabilities = check_probabilities(self, P, reset=True)
        n_rows, n_classes = probabilities.shape
        self.classes_ = class_names(self.classes, n_classes)
        true = label_indices(y, self.classes_, n_rows, named=self.classes is not None)
        warn_absent_classes(true, self.classes_)

        rng = check_random_state(self.random_state)
        order = rng.permutation(n_rows)
        n_held = round(self.validation_fraction * n_rows)
        rows, labels = torch.from_numpy(normalised(probabilities)[order]), torch.from_numpy(true[order])
        training, held = (rows[n_held:], labels[n_held:]), (rows[:n_held], labels[:n_held])
        self.mu_ = smoothing(self.mu, n_rows - n_held)
        down = torch.from_numpy(rng.standard_normal((n_classes, self.n_hidden)) / math.sqrt(n_classes))
        parameters = [down, down.new_zeros((self.n_hidden, n_classes)), down.new_zeros(n_classes)]
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # the operations are small, and their sums then do not depend on the machine's load
        try:
            self._train(training, held if n_held else training, parameters)
        finally:
            torch.set_num_threads(threads)
        return self

    def predict(self, P: ArrayLike) -> NDArray[Any]:
        """Class of the largest adapted probability; ties go to the lowest column. (M,)."""
        columns = self.predict_proba(P).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[columns]
        return predicted

    def predict_proba(self, P: ArrayLike) -> NDArray[np.float64]:
        """Adapted probabilities q: (M, N)."""
        check_is_fitted(self)
        rows = normalised(check_probabilities(self, P, reset=False))
        logits = np.log(np.maximum(rows, FLOOR)) + rows @ self.down_ @ self.up_ + self.bias_
        return normalised(np.exp(logits - logits.max(axis=1, keepdims=True)))

    def _check_parameters(self) -> None:
        for name in ("n_hidden", "max_epochs", "patience"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"{name} must be a positive integer, found {value!r}")
        for name in ("beta", "tau"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and non-negative, found {value!r}")
        for name, value in (("mu", smoothing(self.mu, 1)), ("learning_rate", self.learning_rate)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be finite and positive, found {value!r}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be at least 0 and below 1, found {self.validation_fraction!r}")

    def _train(self, training: Rows, held: Rows, parameters: Sequence[torch.Tensor]) -> None:
        """Step until Z of the held-out rows has not fallen for `patience` steps; keep the best parameters."""
        import torch

        optimiser = torch.optim.Adam([tensor.requires_grad_() for tensor in parameters], lr=self.learning_rate)
        self.loss_, best_epoch = math.inf, 0
        for epoch in range(self.max_epochs + 1):
            with torch.no_grad():
                loss = float(self._surrogate(*held, parameters))
            if loss < self.loss_:
                self.loss_, best_epoch = loss, epoch
                self.down_, self.up_, self.bias_ = (tensor.detach().numpy().copy() for tensor in parameters)
            self.n_iter_ = epoch
            if epoch == self.max_epochs or epoch - best_epoch >= self.patience:
                break
            optimiser.zero_grad()
            self._surrogate(*training, parameters).backward()
            optimiser.step()

    def _surrogate(self, rows: torch.Tensor, true: torch.Tensor, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
        """Soft Z of (M, N) probabilities and (M,) labels under the adapter."""
        down, up, bias = parameters
        n_rows, n_classes = rows.shape
        mu = smoothing(self.mu, n_rows)
        soft = (rows.clamp_min(FLOOR).log() + rows @ down @ up + bias).softmax(dim=1)
        correct = soft.new_zeros(n_classes).index_add(0, true, soft.gather(1, true[:, None])[:, 0])
        counts = true.bincount(minlength=n_classes).to(soft.dtype)
        present = counts > 0
        accuracies = correct[present] / counts[present]
        n_pairs = max(len(accuracies) * (len(accuracies) - 1), 1)  # ordered pairs: each difference stands twice
        bias_term = (accuracies[:, None] - accuracies).abs().sum() / n_pairs
        joint = ((correct + mu) / (n_rows + mu * n_classes**2)).log()
        predicted, actual = (((part + mu) / (n_rows + mu * n_classes)).log() for part in (soft.sum(dim=0), counts))
        pmi = (joint - predicted - actual).sum()
        return 1 - correct.sum() / n_rows + self.beta * bias_term - self.tau * pmi
