"""What a provider charges for a model. In no digest: prices change, answers do not."""

from __future__ import annotations

from pydantic import Field

from poise.config.base import Strict


class Price(Strict):
    """US dollars for a million tokens, read and written; hidden tokens count as written ones."""

    input_usd_per_million: float = Field(ge=0)
    output_usd_per_million: float = Field(ge=0)

    def cost_usd(self, n_prompt_tokens: int, n_tokens: int) -> float:
        """Cost in US dollars of so many tokens, read and written."""
        return (n_prompt_tokens * self.input_usd_per_million + n_tokens * self.output_usd_per_million) / 1e6
