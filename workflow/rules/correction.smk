# Correction: each method on the class probabilities of one model and data set.


rule correct:
    input:
        POISE.correct_inputs,
    output:
        predictions=str(
            paths.predictions(
                STUDY, "{experiment}", "{model}", "{dataset}", "{method}"
            )
        ),
        fits=str(
            paths.predictions(
                STUDY, "{experiment}", "{model}", "{dataset}", "{method}"
            ).with_suffix(".json")
        ),
        timings=str(
            paths.timings(STUDY, "{experiment}", "{model}", "{dataset}", "{method}")
        ),
    log:
        f"logs/{STUDY}/correct/{{experiment}}/{{model}}/{{dataset}}/{{method}}.log",
    benchmark:
        f"logs/{STUDY}/correct/{{experiment}}/{{model}}/{{dataset}}/{{method}}.tsv"
    params:
        digest=POISE.correct_digest,
    shell:
        "poise correct --experiment {wildcards.experiment} --model {wildcards.model}"
        " --dataset {wildcards.dataset} --method {wildcards.method} --log {log}"
