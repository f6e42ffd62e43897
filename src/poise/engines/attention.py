"""Which tokens the layers of a model attend to, written down as masks for a packed sequence.

A layer attends to the whole context or to a sliding window: the last ``window`` positions, its own among them.
Distances are those of positions in the prompt, not of places in the pack, so a packed prompt sees what it would see by
itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

FULL, SLIDING = "full_attention", "sliding_attention"


def layer_windows(config: Any) -> dict[str, int | None]:
    """Window in tokens of each type of attention layer of a model, None for the whole context.

    Empty if some layer is of another type (chunks, recurrences): no mask describes it, so nothing can be packed.
    """
    text = config.get_text_config()
    window: int | None = getattr(text, "sliding_window", None)
    types = getattr(text, "layer_types", None)
    if types is None:
        return {FULL: None} if window is None else {SLIDING: window}
    windows = {FULL: None, SLIDING: window}
    return {layer: windows[layer] for layer in dict.fromkeys(types)} if windows.keys() >= set(types) else {}


def attention_masks(
    windows: dict[str, int | None],
    attends: np.ndarray,
    positions: np.ndarray,
    n_prefix: int,
    dtype: torch.dtype,
    device: str,
) -> torch.Tensor | dict[str, torch.Tensor]:
    """Additive masks of one packed sequence behind a cached prefix.

    Parameters
    ----------
    windows
        What :func:`layer_windows` found.
    attends
        Shape (packed, packed): which packed tokens are each one's own ancestors, or itself.
    positions
        Shape (packed,): position of each packed token in its prompt.
    n_prefix
        Tokens in the cache, at positions 0 to ``n_prefix - 1``; all are ancestors.

    Returns
    -------
    Tensor or dict of Tensor
        Shape (1, 1, packed, n_prefix + packed), 0 or minus infinity; by layer type if the model has several.
    """
    ancestors = np.hstack([np.ones((len(attends), n_prefix), dtype=bool), attends])
    distances = positions[:, None] - np.concatenate([np.arange(n_prefix), positions])
    masks = {}
    for layer, window in windows.items():
        seen = torch.from_numpy(ancestors if window is None else ancestors & (distances < window))
        masks[layer] = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))[None, None].to(device)
    return masks if len(masks) > 1 else next(iter(masks.values()))
