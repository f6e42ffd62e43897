# Metrics: tidy, one row a number; first for each model and data set, then gathered for each instrument.


rule measure:
    input:
        metric_inputs,
    output:
        str(paths.cell_metrics(STUDY, "{experiment}", "{model}", "{dataset}")),
    params:
        digest=lambda wildcards: digest(
            [
                group_cells(wildcards),
                PLAN.study.datasets[wildcards.dataset].classes,
                {name: probe.model_dump(mode="json") for name, probe in PLAN.study.probes.items()},
                source_digest("metrics"),
            ]
        ),
    log:
        f"logs/{STUDY}/measure/{{experiment}}/{{model}}/{{dataset}}.log",
    resources:
        mem_mb=1000,
    shell:
        "{POISE} measure --plan {PLAN_PATH} --experiment {wildcards.experiment} --model {wildcards.model}"
        " --dataset {wildcards.dataset} --log {log}"


rule collect:
    input:
        instrument_inputs,
    output:
        str(paths.metrics(STUDY, "{instrument}")),
    params:
        digest=lambda wildcards: digest(instrument_inputs(wildcards)),
    log:
        f"logs/{STUDY}/collect/{{instrument}}.log",
    resources:
        mem_mb=1000,
    shell:
        "{POISE} collect --plan {PLAN_PATH} --instrument {wildcards.instrument} --log {log}"
