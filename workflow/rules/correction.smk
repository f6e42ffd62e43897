# Correction: each method on the class probabilities of one model and data set.


rule correct:
    input:
        lambda wildcards: responses(wildcards.experiment, wildcards.model, wildcards.dataset),
    output:
        predictions=str(paths.predictions(STUDY, "{experiment}", "{model}", "{dataset}", "{method}")),
        fits=str(paths.predictions(STUDY, "{experiment}", "{model}", "{dataset}", "{method}").with_suffix(".json")),
    params:
        digest=lambda wildcards: digest(
            [
                group_cells(wildcards),
                PLAN.study.methods[wildcards.method].model_dump(mode="json"),
                source_digest("methods"),
            ]
        ),
    log:
        f"logs/{STUDY}/correct/{{experiment}}/{{model}}/{{dataset}}/{{method}}.log",
    benchmark:
        f"logs/{STUDY}/correct/{{experiment}}/{{model}}/{{dataset}}/{{method}}.tsv"
    resources:
        mem_mb=1000,
    shell:
        "{POISE} correct --plan {PLAN_PATH} --experiment {wildcards.experiment} --model {wildcards.model}"
        " --dataset {wildcards.dataset} --method {wildcards.method} --log {log}"
