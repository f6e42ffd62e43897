"""Label texts become token sequences, and the scores of sequences become one number for each label.

Three ways to score (``model.label_tokens.scoring``): ``sequence``, the chain rule over all tokens of a label;
``first``, the first token that tells the labels apart; ``mean``, the mean probability of all tokens of a label at one
position (the DNIP authors' rule for Llama-2). Leading tokens that all labels share fold into the prompt for ``first``
and ``mean``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import logsumexp

from poise.engines.base import LabelScores, TokenIds
from poise.errors import PoiseError


@dataclass(frozen=True)
class LabelSpace:
    """Token sequences to score for a fixed list of labels, and how to pool them.

    Attributes
    ----------
    sequences
        What the engine scores.
    owners
        For each sequence, the labels that it belongs to.
    n_labels
        Number of labels.
    """

    sequences: tuple[TokenIds, ...]
    owners: tuple[tuple[int, ...], ...]
    n_labels: int

    def pool(self, scores: LabelScores) -> LabelScores:
        """Combine sequence scores into label scores: the log of the mean probability of a label's sequences."""
        logprobs = np.empty(self.n_labels)
        for label in range(self.n_labels):
            own = [scores.logprobs[k] for k, owners in enumerate(self.owners) if label in owners]
            logprobs[label] = own[0] if len(own) == 1 else logsumexp(own) - np.log(len(own))
        owners = self.owners[scores.greedy] if scores.greedy >= 0 else ()
        return LabelScores(logprobs, owners[0] if len(owners) == 1 else -1)


def label_space(labels: Sequence[str], token_ids: Sequence[TokenIds], scoring: str, where: str) -> LabelSpace:
    """Decide what to score for labels with these token sequences.

    Raises
    ------
    PoiseError
        If a label has no token, two labels have the same tokens, one is a prefix of another, or (``first``) two share
        the first token that should tell them apart.
    """
    for label, ids in zip(labels, token_ids, strict=True):
        if not ids:
            raise PoiseError(f"{where}: label {label!r} tokenises to nothing; choose another label word")
    n_shared = 0
    while len({ids[: n_shared + 1] for ids in token_ids}) == 1 and all(len(ids) > n_shared + 1 for ids in token_ids):
        n_shared += 1
    if scoring == "mean":
        sequences: dict[TokenIds, list[int]] = {}
        for k, ids in enumerate(token_ids):
            for token in dict.fromkeys(ids[n_shared:]):
                sequences.setdefault((*ids[:n_shared], token), []).append(k)
        return LabelSpace(tuple(sequences), tuple(tuple(owners) for owners in sequences.values()), len(labels))
    for i, first in enumerate(token_ids):
        for j, second in enumerate(token_ids):
            if i != j and second[: len(first)] == first:
                relation = "has the same tokens as" if first == second else "is a prefix (in tokens) of"
                raise PoiseError(f"{where}: label {labels[i]!r} {relation} {labels[j]!r}; choose another label word")
    if scoring == "first":
        cut = [ids[: n_shared + 1] for ids in token_ids]
        for i, ids in enumerate(cut):
            if ids in cut[:i]:
                raise PoiseError(
                    f"{where}: labels {labels[cut.index(ids)]!r} and {labels[i]!r} share their first token, so scoring "
                    f"'first' cannot tell them apart; use model.label_tokens.scoring=sequence"
                )
        token_ids = cut
    return LabelSpace(tuple(token_ids), tuple((label,) for label in range(len(labels))), len(labels))


@dataclass(frozen=True)
class LabelTrie:
    """Trie over label token sequences: one forward position for each inner node scores all of its children.

    Attributes
    ----------
    paths
        Token path of each inner node from the end of the prompt; the root, an empty path, is first; parents precede
        their children.
    children
        For each inner node, the tokens that may follow.
    """

    paths: tuple[TokenIds, ...]
    children: tuple[tuple[int, ...], ...]
    node_of: dict[TokenIds, int] = field(repr=False, compare=False)

    @classmethod
    def build(cls, sequences: Sequence[TokenIds]) -> LabelTrie:
        """Build the trie of some token sequences."""
        following: dict[TokenIds, dict[int, None]] = {}
        for ids in sequences:
            for depth, token in enumerate(ids):
                following.setdefault(ids[:depth], {})[token] = None
        paths = tuple(sorted(following, key=lambda path: (len(path), path)))
        return cls(paths, tuple(tuple(following[path]) for path in paths), {path: k for k, path in enumerate(paths)})

    def read(
        self, sequences: Sequence[TokenIds], logprob: Callable[[int, int], float], top: Callable[[int], int]
    ) -> LabelScores:
        """Sum the chain rule along each sequence and follow the greedy path.

        Parameters
        ----------
        sequences
            The sequences that the trie was built of.
        logprob
            Log-probability of a token at an inner node.
        top
            Most probable token of the whole vocabulary at an inner node.
        """
        logprobs = np.array(
            [sum(logprob(self.node_of[ids[:depth]], token) for depth, token in enumerate(ids)) for ids in sequences]
        )
        path: TokenIds = ()
        while path in self.node_of:
            path = (*path, top(self.node_of[path]))
        return LabelScores(logprobs, sequences.index(path) if path in sequences else -1)


def label_token_ids(encode: Callable[[str, bool], list[int]], tail: str, label: str) -> tuple[TokenIds, bool]:
    """Tokens that a label adds after a prompt that ends in ``tail``, and whether they were found by joint encoding.

    The prompt's tail and the label are encoded as one string, as the model would see them written. If that merges
    tokens across the boundary, the label is encoded alone, and the second value is False.
    """
    alone = encode(tail, False)
    joint = encode(tail + label, False)
    if joint[: len(alone)] == alone:
        return tuple(joint[len(alone) :]), True
    return tuple(encode(label, False)), False
