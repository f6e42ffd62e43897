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
        "poise download --file {wildcards.filename} --log {log}"


rule prepare_dataset:
    input:
        POISE.dataset_inputs,
    output:
        str(paths.PREPARED / "{dataset}.{digest}.parquet"),
    log:
        "logs/prepare/{dataset}.{digest}.log",
    shell:
        "poise prepare-dataset --dataset {wildcards.dataset} --log {log}"


rule prepare_model:
    input:
        POISE.model_inputs,
    output:
        str(paths.MODELS / "{model}.{digest}" / "poise.json"),
    log:
        "logs/prepare/{model}.{digest}.log",
    shell:
        "poise prepare-model --model {wildcards.model} --log {log}"
