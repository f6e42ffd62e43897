"""Whether a study's labels can be told apart, as far as tokenizers that are at hand can say. No weights are loaded."""

from __future__ import annotations

from poise import paths
from poise.cells import settings
from poise.engines.ask import last_line, tokenised_labels
from poise.engines.located import label_forms
from poise.plan import Plan
from poise.prompts.render import Renderer


def check_labels(plan: Plan) -> list[str]:
    """Check the labels that are scored, with every model whose tokenizer is prepared; return the models skipped.

    Every setting of every experiment of a model is checked: the baseline and each level of each factor.

    Raises
    ------
    PoiseError
        If a label tokenises to nothing, is a prefix of another, or shares its first token under ``first``.
    """
    from tokenizers import Tokenizer

    skipped = []
    for model in plan.study.models.values():
        if model.answers == "text":
            continue
        file = paths.model_dir(model.name, plan.model_digests[model.name]) / "tokenizer.json"
        if plan.study.engine_of(model).kind in ("dummy", "openai") or not file.is_file():
            skipped.append(model.name)
            continue
        tokenizer = Tokenizer.from_file(str(file))

        def encode(text: str, special_tokens: bool, tokenizer: Tokenizer = tokenizer) -> list[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=special_tokens).ids
            return ids

        for experiment in plan.study.experiment.values():
            if model.name not in (experiment.models or plan.study.models):
                continue
            for dataset in experiment.datasets:
                for setting in settings(plan.study, experiment, plan.study.datasets[dataset]):
                    scaled = plan.study.datasets[dataset].scaled(setting.cardinality)
                    shown = [("text", label) for label in range(len(scaled.classes))]  # some prompts need them
                    reasons = ["reason"] * len(shown)
                    tokens = model.label_tokens
                    renderer = Renderer(setting.prompt, scaled, shown, tokens, chat=model.chat, reasons=reasons)
                    request = renderer.requests("text")[0]
                    tail = "" if model.chat else last_line(request.prompt.text)
                    level = f" ({setting.factor}={setting.level})" if setting.factor else ""
                    where = f"model {model.name}, prompt {setting.prompt.name} on {dataset}{level}"
                    if request.located:
                        label_forms(encode, request.labels, tokens.scoring, where)
                    else:
                        tokenised_labels(encode, tail, request.labels, tokens.scoring, where)
    return skipped
