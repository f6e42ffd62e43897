"""Answers cut back into cells: label positions become classes."""

from __future__ import annotations

import numpy as np

from poise.answers import class_probabilities
from poise.prompts.render import label_position


def test_probabilities_are_normalised_over_the_labels() -> None:
    found = class_probabilities(np.log(np.array([[0.2, 0.2, 0.1]], dtype=np.float32)), [0, 1, 2])
    np.testing.assert_allclose(found, [[0.4, 0.4, 0.2]], rtol=1e-6)
    assert found.dtype == np.float32


def test_a_reversed_mapping_puts_the_last_label_into_the_first_class() -> None:
    columns = [label_position(c, 3, "reversed") for c in range(3)]
    found = class_probabilities(np.log(np.array([[0.7, 0.2, 0.1]])), columns)
    np.testing.assert_allclose(found, [[0.1, 0.2, 0.7]], rtol=1e-6)
