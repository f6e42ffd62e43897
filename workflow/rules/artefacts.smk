# Artefacts: one table or figure a job, from tidy metrics only.


rule table:
    input:
        POISE.artefact_inputs,
    output:
        csv=report(
            str(paths.table(STUDY, "{artefact}")),
            category="Tables",
            subcategory="Tidy values",
            labels={"table": "{artefact}"},
        ),
        md=str(paths.table(STUDY, "{artefact}", ".md")),
        html=report(
            str(paths.table(STUDY, "{artefact}", ".html")),
            category="Tables",
            subcategory="As printed",
            labels={"table": "{artefact}"},
        ),
    log:
        f"logs/{STUDY}/tables/{{artefact}}.log",
    resources:
        mem_mb=1000,
    params:
        digest=POISE.artefact_digest,
    shell:
        "poise table --artefact {wildcards.artefact} --log {log}"


rule figure:
    input:
        POISE.artefact_inputs,
    output:
        png=report(
            str(paths.figure(STUDY, "{artefact}")),
            category="Figures",
            labels={"figure": "{artefact}"},
        ),
        pdf=str(paths.figure(STUDY, "{artefact}", ".pdf")),
    log:
        f"logs/{STUDY}/figures/{{artefact}}.log",
    resources:
        mem_mb=1000,
    params:
        digest=POISE.artefact_digest,
    shell:
        "poise figure --artefact {wildcards.artefact} --log {log}"
