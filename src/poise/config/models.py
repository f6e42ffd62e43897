"""The typed shape of a model: where it comes from, and the conventions that its prompts follow."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from poise.config.base import Line, Slug, Strict
from poise.config.prices import Price
from poise.config.sources import HubSource, ModelSource


class LabelTokens(Strict):
    """How a label word becomes tokens, and how their probabilities become one number per class."""

    prefix_space: bool = True
    scoring: Literal["first", "mean", "sequence"] = "sequence"


class Model(Strict):
    """A language model and the conventions that its prompts follow."""

    name: Slug
    title: Line
    source: ModelSource
    gguf: str | None = None
    chat: bool = False
    chat_options: dict[str, bool | int | str] = {}
    label_tokens: LabelTokens = LabelTokens()
    context_length: int = Field(gt=0)
    answers: Literal["scores", "text"] = "scores"
    max_new_tokens: int = Field(default=8, gt=0)
    precision_note: str = ""
    assumed: bool = False
    tokens_per_second: float | None = Field(default=None, gt=0)
    price: Price | None = None
    api_options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if self.api and self.gguf is not None:
            raise ValueError("gguf is for models with weights, and this one's source is an API")
        if self.api and self.label_tokens.scoring == "mean":
            raise ValueError("label_tokens.scoring: mean needs the model's own tokenizer, which an API hides")
        if not self.api and (self.price is not None or self.api_options):
            raise ValueError("price and api_options are for models whose source is an API")
        if self.chat_options and not self.chat:
            raise ValueError("chat_options are for chat: true")
        if isinstance(self.source, HubSource) and self.source.revision == "main" and not self.assumed:
            raise ValueError("source.revision: main is for assumed: true; pin a full commit hash")
        return self

    @property
    def api(self) -> bool:
        """Whether the model is only reachable through a provider's API."""
        return self.source.kind == "api"
