# Artefacts: one table or figure a job, from tidy metrics only.


rule table:
    input:
        POISE.artefact_inputs,
    output:
        csv=report(
            str(paths.table(STUDY, "{artefact}")),
            caption="../report/artefact.rst",
            category=REPORT.category,
            subcategory="Tables",
            labels=REPORT.values_labels,
        ),
        md=str(paths.table(STUDY, "{artefact}", ".md")),
        html=report(
            str(paths.table(STUDY, "{artefact}", ".html")),
            caption="../report/artefact.rst",
            category=REPORT.category,
            subcategory="Tables",
            labels=REPORT.page_labels,
        ),
        tex=str(paths.table(STUDY, "{artefact}", ".tex")),
    log:
        f"logs/{STUDY}/tables/{{artefact}}.log",
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
            caption="../report/artefact.rst",
            category=REPORT.category,
            subcategory="Figures",
            labels=REPORT.labels,
        ),
        pdf=str(paths.figure(STUDY, "{artefact}", ".pdf")),
    log:
        f"logs/{STUDY}/figures/{{artefact}}.log",
    params:
        digest=POISE.artefact_digest,
    shell:
        "poise figure --artefact {wildcards.artefact} --log {log}"
