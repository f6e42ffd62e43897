"""Whether a study's labels can be told apart, as far as tokenizers that are at hand can say. No weights are loaded."""

from __future__ import annotations

from poise import paths
from poise.engines.ask import last_line, tokenised_labels
from poise.plan import Plan, prompt_name
from poise.prompts.render import Renderer


def check_labels(plan: Plan) -> list[str]:
    """Check the labels of every prompt with every model whose tokenizer is prepared; return the models skipped.

    Raises
    ------
    PoiseError
        If a label tokenises to nothing, is a prefix of another, or shares its first token under ``first``.
    """
    from tokenizers import Tokenizer

    skipped = []
    for model in plan.study.models.values():
        file = paths.model_dir(model.name, plan.model_digests[model.name]) / "tokenizer.json"
        if plan.study.engine.kind == "dummy" or not file.is_file():
            skipped.append(model.name)
            continue
        tokenizer = Tokenizer.from_file(str(file))

        def encode(text: str, special_tokens: bool, tokenizer: Tokenizer = tokenizer) -> list[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=special_tokens).ids
            return ids

        for experiment in plan.study.experiment.values():
            for dataset in experiment.datasets:
                prompt = plan.prompts[prompt_name(experiment, dataset)]
                renderer = Renderer(prompt, plan.study.datasets[dataset], (), model.label_tokens, chat=model.chat)
                request = renderer.request("text")
                tail = "" if model.chat else last_line(request.prompt.text)
                where = f"model {model.name}, prompt {prompt.name} on {dataset}"
                tokenised_labels(encode, tail, request.labels, model.label_tokens.scoring, where)
    return skipped
