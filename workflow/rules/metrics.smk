# Metrics: tidy, one row a number; first for each model and data set, then gathered for each instrument.


rule measure:
    input:
        POISE.measure_inputs,
    output:
        str(paths.cell_metrics(STUDY, "{experiment}", "{model}", "{dataset}")),
    log:
        f"logs/{STUDY}/measure/{{experiment}}/{{model}}/{{dataset}}.log",
    params:
        digest=POISE.measure_digest,
    shell:
        "poise measure --experiment {wildcards.experiment} --model {wildcards.model}"
        " --dataset {wildcards.dataset} --log {log}"


rule collect:
    input:
        POISE.collect_inputs,
    output:
        str(paths.metrics(STUDY, "{instrument}")),
    log:
        f"logs/{STUDY}/collect/{{instrument}}.log",
    params:
        digest=POISE.collect_digest,
    shell:
        "poise collect --instrument {wildcards.instrument} --log {log}"


# What `collect` gathers where files are many: two levels, so that no job reads more than a few hundred.
rule collect_part:
    input:
        POISE.collect_part_inputs,
    output:
        str(paths.metrics_part(STUDY, "{instrument}", "{part}")),
    log:
        f"logs/{STUDY}/collect/{{instrument}}-{{part}}.log",
    wildcard_constraints:
        part=r"\d+",
    params:
        digest=POISE.collect_part_digest,
    shell:
        "poise collect --instrument {wildcards.instrument} --part {wildcards.part} --log {log}"


# Joint configurations chosen from the study's own factors; the next run of the study measures them.
rule select:
    input:
        POISE.select_inputs,
    output:
        str(paths.selection(STUDY)),
    log:
        f"logs/{STUDY}/select.log",
    params:
        digest=POISE.select_digest,
    shell:
        "poise select --log {log}"
