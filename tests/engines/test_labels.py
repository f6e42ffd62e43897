"""Label token sequences: which can be told apart, how they are scored."""

from __future__ import annotations

import numpy as np
import pytest

from poise.engines.base import LabelScores
from poise.engines.labels import LabelTrie, label_space, label_token_ids
from poise.errors import PoiseError


def test_first_takes_the_first_token_that_tells_labels_apart() -> None:
    space = label_space(["1", "2", "30"], [(9, 1), (9, 2), (9, 3, 0)], "first", "m")
    assert space.sequences == ((9, 1), (9, 2), (9, 3))


def test_sequence_keeps_all_tokens() -> None:
    space = label_space(["a", "b"], [(9, 1, 4), (9, 1, 5)], "sequence", "m")
    assert space.sequences == ((9, 1, 4), (9, 1, 5))


def test_mean_averages_the_probabilities_of_all_tokens_at_one_position() -> None:
    space = label_space(["ab", "c"], [(1, 2), (3,)], "mean", "m")
    assert space.sequences == ((1,), (2,), (3,))
    pooled = space.pool(LabelScores(np.log([0.5, 0.1, 0.2]), greedy=1))
    np.testing.assert_allclose(np.exp(pooled.logprobs), [0.3, 0.2])
    assert pooled.greedy == 0


def test_mean_shares_a_token_of_two_labels_and_has_no_greedy_label_then() -> None:
    space = label_space(["ab", "bc"], [(1, 2), (2, 3)], "mean", "m")
    pooled = space.pool(LabelScores(np.log([0.2, 0.4, 0.1]), greedy=1))
    np.testing.assert_allclose(np.exp(pooled.logprobs), [0.3, 0.25])
    assert pooled.greedy == -1


@pytest.mark.parametrize(
    ("ids", "scoring", "words"),
    [
        ([(1,), ()], "sequence", ["'b'", "tokenises to nothing"]),
        ([(1,), (1, 2)], "sequence", ["'a'", "prefix", "'b'"]),
        ([(1, 2), (1,)], "first", ["'b'", "prefix", "'a'"]),
        ([(1, 2), (1, 2)], "sequence", ["same tokens"]),
        (
            [(7, 1, 2), (7, 1, 3), (7, 2, 2)],
            "first",
            ["'a'", "'b'", "share their first token", "scoring=sequence"],
        ),
    ],
)
def test_labels_that_cannot_be_told_apart_are_an_error(ids: list, scoring: str, words: list[str]) -> None:
    with pytest.raises(PoiseError) as caught:
        label_space(["a", "b", "c"][: len(ids)], ids, scoring, "model m")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("model m: ")
    for word in words:
        assert word in message


def test_trie_has_one_node_for_each_shared_prefix() -> None:
    trie = LabelTrie.build([(5, 1), (5, 2), (6,)])
    assert trie.paths == ((), (5,))
    assert trie.children == ((5, 6), (1, 2))


def test_trie_sums_the_chain_rule_and_follows_the_greedy_path() -> None:
    sequences = [(5, 1), (5, 2), (6,)]
    trie = LabelTrie.build(sequences)
    table = {(0, 5): -1.0, (0, 6): -2.0, (1, 1): -0.5, (1, 2): -3.0}
    scores = trie.read(sequences, lambda node, token: table[node, token], lambda node: [5, 2][node])
    np.testing.assert_allclose(scores.logprobs, [-1.5, -4.0, -2.0])
    assert scores.greedy == 1
    assert trie.read(sequences, lambda *_: 0.0, lambda node: [5, 8][node]).greedy == -1


def test_labels_are_tokenised_together_with_the_prompt() -> None:
    merges = {"Label:": [1], "Label: 3": [1, 2, 3], " 3": [9], "x3": [7]}
    assert label_token_ids(lambda text, _: merges[text], "Label:", " 3") == ((2, 3), True)
    merged = {"x": [5], "x3": [7], "3": [3]}
    assert label_token_ids(lambda text, _: merged[text], "x", "3") == ((3,), False)
