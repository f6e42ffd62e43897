"""Extraction: one batch of cells, one model load, one Parquet file of answers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from typing import Any

import pandas as pd

from poise import __version__, paths
from poise.config.models import Model
from poise.engines.ask import Asked, Tokenised, ask, tokenise
from poise.engines.base import Engine, open_engine
from poise.engines.devices import claim, gpus_wanted
from poise.errors import PoiseError
from poise.files import read_parquet, write_json, write_parquet
from poise.plan import Batch, Plan
from poise.prompts.requests import RequestList, build_requests
from poise.stages.attempt import Attempt, say


def extract(plan: Plan, batch_id: str, threads: int | None = None) -> None:
    """Ask everything a batch asks; write ``responses``, ``index``, ``demonstrations``, ``regrouped`` and ``meta``.

    ``responses.parquet`` is written last, so that its presence means that the batch is complete.
    """
    batch = _batch(plan, batch_id)
    folder = paths.batch_dir(batch.model, batch.id)
    cells = [plan.cell_by_id[cell] for cell in batch.cells]
    names = sorted({cell.dataset for cell in cells})
    datasets = {name: read_parquet(paths.prepared_dataset(name, plan.dataset_digests[name])) for name in names}
    asked_for = build_requests(plan, cells, datasets)
    model = plan.study.models[batch.model]
    config = plan.study.engine_of(model)
    requests = list(asked_for.requests.values())
    wanted = set(asked_for.regrouped)
    chosen = [k for k, request in enumerate(requests) if request.id in wanted]
    with (
        Attempt(folder, batch.model, config, len(requests) + len(chosen)) as attempt,
        claim(gpus_wanted(config), say) as attempt.device,
    ):
        attempt.doing("loading")
        started = time.monotonic()
        model_dir = paths.model_dir(batch.model, plan.model_digests[batch.model])
        engine = open_engine(config, model, model_dir, threads)
        load_seconds = time.monotonic() - started
        attempt.doing("asking")
        where = f"model {batch.model}"
        context_length = config.context_length(model.context_length)
        tokenised = tokenise(engine, requests, model.label_tokens.scoring, context_length, where)
        answers = ask(engine, requests, tokenised, folder / "parts", config.flush_seconds, f"extract {batch.model}")
        again = None
        if chosen:
            again = ask(
                engine,
                [requests[k] for k in chosen],
                [tokenised[k] for k in chosen],
                folder / "parts-regrouped",
                config.flush_seconds,
                f"regroup {batch.model}",
                regroup=True,
            )
        write_parquet(folder / "regrouped.parquet", (again or answers).responses.iloc[: len(chosen)])
        write_parquet(folder / "index.parquet", asked_for.index)
        write_parquet(folder / "demonstrations.parquet", asked_for.demonstrations)
        write_json(folder / "meta.json", _meta(batch, model, engine, asked_for, tokenised, answers, load_seconds))
        write_parquet(folder / "responses.parquet", answers.responses)
        for parts in folder.glob("parts*"):
            shutil.rmtree(parts)


def _batch(plan: Plan, batch_id: str) -> Batch:
    batch = plan.batch_by_id.get(batch_id)
    if batch is None:
        raise PoiseError(f"batch {batch_id}: not in this plan, which has {sorted(plan.batch_by_id)}")
    foreign = sorted(set(batch.cells) - set(plan.cell_by_id))
    if foreign:
        raise PoiseError(
            f"batch {batch_id}: {len(foreign)} of its cells are of another plan, so it cannot be asked again from this "
            f"one; delete {paths.batch_dir(batch.model, batch.id)} and run again"
        )
    return batch


def _meta(
    batch: Batch,
    model: Model,
    engine: Engine,
    asked_for: RequestList,
    tokenised: Sequence[Tokenised],
    answers: Asked,
    load_seconds: float,
) -> dict[str, Any]:
    """What a reader needs to trust or repeat a batch; nothing here enters a table."""
    asked_tokens = sum(len(item.query.prompt_ids) for item in tokenised)
    n_new = len(tokenised) - answers.n_resumed
    texts = answers.responses[answers.responses["text"].notna()]
    return {
        "batch": batch.id,
        "model": batch.model,
        "cells": len(batch.cells),
        "poise": __version__,
        "synthetic": engine.synthetic,
        **engine.description(),
        "rows": len(asked_for.index),
        "requests": len(tokenised),
        "generated_requests": len(texts),
        "generated_tokens": int(texts["n_tokens"].sum()),
        "hidden_tokens": int(texts["n_hidden_tokens"].sum()),
        "resumed_requests": answers.n_resumed,
        "damaged_parts": answers.n_damaged_parts,
        "micro_batches": answers.n_micro_batches,
        "prompt_tokens": asked_tokens,
        "computed_tokens": answers.n_computed_tokens,
        "prompts_with_dropped_demonstrations": sum(item.n_dropped > 0 for item in tokenised),
        "dropped_demonstrations": sum(item.n_dropped for item in tokenised),
        **(_billed(model, answers.responses) if model.api else {}),
        "labels_tokenised_alone": sum(not item.joint for item in tokenised),
        "load_seconds": round(load_seconds, 2),
        "seconds": round(answers.seconds, 2),
        "prompts_per_second": round(n_new / answers.seconds, 2) if answers.seconds else None,
    }


def _billed(model: Model, responses: pd.DataFrame) -> dict[str, Any]:
    """What a server counted for all answers, earlier runs' too, and what that costs."""
    n_prompt_tokens = int(responses["prompt_tokens"].sum())
    n_tokens = int(responses["n_tokens"].sum())
    price = model.price
    cost = None if price is None else round(price.cost_usd(n_prompt_tokens, n_tokens), 6)
    return {
        "billed_prompt_tokens": n_prompt_tokens,
        "billed_completion_tokens": n_tokens,
        "cost_usd": "price not configured" if cost is None else cost,
        "hard_predictions": int(responses["logprobs"].isna().sum()),
    }
