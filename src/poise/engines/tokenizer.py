"""A model's own tokenizer and chat template, as the engines that load weights share them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from poise.errors import PoiseError


class Tokenizer:
    """Texts to tokens and back, with the files in a model's folder.

    Parameters
    ----------
    model_dir
        Local folder with the tokenizer's files.
    chat_options
        Arguments of the model's chat template.
    """

    def __init__(self, model_dir: Path, chat_options: Mapping[str, bool | int | str] | None = None) -> None:
        from transformers import AutoTokenizer

        self.chat_options = dict(chat_options or {})
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(model_dir, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise PoiseError(f"{model_dir}: cannot load the tokenizer: {' '.join(str(error).split())[:200]}") from error

    def encode(self, text: str, special_tokens: bool = True) -> list[int]:
        """Token ids of a text; ``special_tokens`` adds what the model expects at the start of a prompt."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=special_tokens)["input_ids"]
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """Text of some tokens."""
        text: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
        return text

    def chat_text(self, text: str) -> str:
        """Wrap one user turn in the model's own chat template, up to where its answer starts."""
        if not self.tokenizer.chat_template:
            raise PoiseError("model.chat is true, but this model has no chat template; set chat: false")
        turn = [{"role": "user", "content": text}]
        wrapped: str = self.tokenizer.apply_chat_template(
            turn, tokenize=False, add_generation_prompt=True, **self.chat_options
        )
        return wrapped

    def stop_ids(self, generation_config: Any) -> set[int]:
        """Tokens that end a text: those of the generation configuration, one or several, and the tokenizer's own."""
        configured = generation_config.eos_token_id if generation_config is not None else None
        ids = configured if isinstance(configured, list) else [configured]
        return {int(k) for k in (*ids, self.tokenizer.eos_token_id) if k is not None}

    @property
    def template_sha256(self) -> str | None:
        """Digest of the chat template, for the batch's metadata; None if the model has none."""
        template = self.tokenizer.chat_template
        return hashlib.sha256(str(template).encode()).hexdigest() if template else None
