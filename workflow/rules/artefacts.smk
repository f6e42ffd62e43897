# Artefacts: one table or figure a job, from tidy metrics only.


def artefact_digest(artefact, stage):
    """What an artefact is made of besides its inputs: titles and names in the plan, and the code that makes it."""
    names = PLAN.study.model_dump(mode="json", include={"model", "dataset", "probe", "method", "experiment"})
    return digest([artefact, names, source_digest(stage)])


rule table:
    input:
        artefact_inputs,
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
    params:
        digest=lambda wildcards: artefact_digest(wildcards.artefact, "tables"),
    log:
        f"logs/{STUDY}/tables/{{artefact}}.log",
    resources:
        mem_mb=1000,
    shell:
        "{POISE} table --plan {PLAN_PATH} --artefact {wildcards.artefact} --log {log}"


rule figure:
    input:
        artefact_inputs,
    output:
        png=report(str(paths.figure(STUDY, "{artefact}")), category="Figures", labels={"figure": "{artefact}"}),
        pdf=str(paths.figure(STUDY, "{artefact}", ".pdf")),
    params:
        digest=lambda wildcards: artefact_digest(wildcards.artefact, "figures"),
    log:
        f"logs/{STUDY}/figures/{{artefact}}.log",
    resources:
        mem_mb=1000,
    shell:
        "{POISE} figure --plan {PLAN_PATH} --artefact {wildcards.artefact} --log {log}"
