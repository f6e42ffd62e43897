# Poise: a table of contents. The plan says what there is to do; the rules say how each stage is called.
#
#   snakemake --cores all                             the default study, demo
#   snakemake --cores all --config study=NAME         another study of conf/study, or one that `poise plan` made
#   snakemake --cores all results/demo/tables/dnip_table3.csv      one file
from snakemake.utils import min_version

min_version("9.25")


include: "workflow/rules/common.smk"
include: "workflow/rules/sources.smk"
include: "workflow/rules/extraction.smk"
include: "workflow/rules/correction.smk"
include: "workflow/rules/metrics.smk"
include: "workflow/rules/artefacts.smk"


report: "workflow/report/workflow.rst"


localrules:
    all,
    tables,
    figures,
    sources,


rule all:
    default_target: True
    input:
        POISE.artefacts("table") + POISE.artefacts("figure") + POISE.selections(),


rule tables:
    input:
        POISE.artefacts("table"),


rule figures:
    input:
        POISE.artefacts("figure"),


# Everything that needs the network, so that the rest can run offline.
rule sources:
    input:
        POISE.sources(),


# What a user sees of a run, beside Snakemake's own lines. Dry runs, reports and jobs call none of these.
onstart:
    WATCH.start(workflow.dag.needrun_jobs())


onsuccess:
    WATCH.stop()
    logger.info(describe_outcome(POISE.plan))


onerror:
    WATCH.stop()
    logger.error(describe_failure(WATCH.failed.values(), sys.argv[1:]))
