"""All tables and figures by id: what each shows, what it is made of, which function makes it. Light to import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from poise import paths

CLASS_ACCURACY = "class_accuracy"
POSITION = "position"
WRITTEN = "written"
TIMING = "timing"


@dataclass(frozen=True)
class Artefact:
    """One table or figure.

    Attributes
    ----------
    kind
        ``table`` or ``figure``.
    instruments
        Whose metrics it reads.
    maker
        ``module:function`` in :mod:`poise.artefacts`.
    reference
        Printed figures of the papers that may stand beside the measured ones.
    optional
        Whether it is made where nothing is measured too: it then says so, and what would measure it.
    """

    kind: str
    title: str
    instruments: tuple[str, ...]
    maker: str
    reference: tuple[str, ...] = ()
    optional: bool = False


ARTEFACTS = {
    "dnip_table1": Artefact(
        "table", "Confusion matrix before correction", (CLASS_ACCURACY,),
        "tables.imbalance:confusion_before", ("dnip/table1.csv",),
    ),
    "dnip_table2": Artefact(
        "table", "Confusion matrix after DNIP", (CLASS_ACCURACY,),
        "tables.imbalance:confusion_after", ("dnip/table2.csv",),
    ),
    "dnip_table3": Artefact(
        "table", "Test accuracy and COBias, before and after DNIP", (CLASS_ACCURACY,),
        "tables.imbalance:main_table", ("dnip/table3.csv",),
    ),
    "dnip_table4": Artefact(
        "table", "Optimisation time by solver", (CLASS_ACCURACY, TIMING),
        "tables.solver:optimisation_seconds", ("dnip/table4.csv",),
    ),
    "dnip_table5": Artefact(
        "table", "Label order in prompts and test scores", (CLASS_ACCURACY,),
        "tables.demonstrations:label_order", ("dnip/table5.csv",),
    ),
    "dnip_table6": Artefact(
        "table", "Chain-of-thought prompting", (WRITTEN,),
        "tables.chain_of_thought:chain_of_thought", ("dnip/table6.csv",), optional=True,
    ),
    "dnip_table7": Artefact(
        "table", "Answer-token confusion matrix of ChatGPT on DDI", (WRITTEN,),
        "tables.answer_token:chatgpt_answer_token", ("dnip/table7.csv",), optional=True,
    ),
    "dnip_table8": Artefact(
        "table", "Answer-token confusion matrix of a local model", (WRITTEN,),
        "tables.answer_token:local_answer_token", ("dnip/table8.csv",), optional=True,
    ),
    **{
        f"dnip_table{8 + slot}": Artefact(
            "table", f"Three DNIP objectives compared: {dataset}, or another data set of the study", (CLASS_ACCURACY,),
            f"tables.objectives:slot_{slot}", (f"dnip/table{8 + slot}.csv",),
        )
        for slot, dataset in enumerate(("DBpedia", "AGNews", "DDI", "TREC", "RTE", "SST-5", "PubMedQA"), start=1)
    },
    "dnip_table16": Artefact(
        "table", "DNIP by size of the optimisation set", (CLASS_ACCURACY,),
        "tables.sizes:optimisation_sizes", ("dnip/table16.csv",),
    ),
    "dnip_methods": Artefact(
        "table", "Comparison of corrections on the same probabilities", (CLASS_ACCURACY,),
        "tables.methods:comparison",
    ),
    "dnip_figure1": Artefact(
        "figure", "Class-accuracy imbalance and where its correction acts", (CLASS_ACCURACY,),
        "figures.illustration:imbalance_and_correction",
    ),
    "dnip_figure2": Artefact(
        "figure", "Objective and temperature curves of the paper's annealing", (CLASS_ACCURACY,),
        "figures.annealing:annealing_curves",
    ),
    "dnip_figure3": Artefact(
        "figure", "Ablation of the objective's terms", (CLASS_ACCURACY,),
        "figures.comparison:ablations",
    ),
    "dnip_figure4": Artefact(
        "figure", "Test scores when optimising COBias_single", (CLASS_ACCURACY,),
        "figures.comparison:cobias_single",
    ),
    "dnip_figure5": Artefact(
        "figure", "Comparison of corrections: accuracy and COBias", (CLASS_ACCURACY,),
        "figures.comparison:peers",
    ),
    "dnip_figure6": Artefact(
        "figure", "The process of DNIP on one data set", (CLASS_ACCURACY,),
        "figures.illustration:process",
    ),
    "dnip_figure7": Artefact(
        "figure", "Test confusion matrices before and after DNIP", (CLASS_ACCURACY,),
        "figures.imbalance:confusion_matrices",
    ),
    "dnip_figure8": Artefact(
        "figure", "Pairwise class-accuracy differences before and after DNIP", (CLASS_ACCURACY,),
        "figures.imbalance:pairwise_differences",
    ),
    "position_table1": Artefact(
        "table", "Ordered data sets", (POSITION,),
        "tables.position:datasets_overview", ("position/table1.csv",),
    ),
    "position_table2": Artefact(
        "table", "Position sensitivity: prediction flip rates", (POSITION,),
        "tables.position:flip_rates", ("position/table2.csv",),
    ),
    "position_table3": Artefact(
        "table", "Factor families and configurations", (POSITION,),
        "tables.position_design:factor_families", ("position/table3.csv",),
    ),
    "position_table4": Artefact(
        "table", "Phase 1 factor residuals", (POSITION,),
        "tables.position_factors:residual_table", ("position/table4.csv",),
    ),
    "position_table5": Artefact(
        "table", "Cross-model residuals under the same configurations", (POSITION,),
        "tables.position_transfer:residual_table", ("position/table5.csv",),
    ),
    "position_table6": Artefact(
        "table", "Pipeline residuals: paradigms, aggregation, debiasing", (POSITION,),
        "tables.position_pipelines:residual_table", ("position/table6.csv",),
    ),
    "position_table9": Artefact(
        "table", "Hidden tokens beside sampling noise", (POSITION,),
        "tables.position_tokens:hidden_tokens", ("position/table2.csv",),
    ),
    "position_table12": Artefact(
        "table", "Phase 1 performance, mean and SD", (POSITION,),
        "tables.position_factors:performance_means",
    ),
    "position_table13": Artefact(
        "table", "Phase 1 flip rates, mean and SD", (POSITION,),
        "tables.position_factors:flip_means",
    ),
    "position_table14": Artefact(
        "table", "Configurations on each model, mean and SD", (POSITION,),
        "tables.position_transfer:full_means",
    ),
    "position_table15": Artefact(
        "table", "Pipelines, mean and SD", (POSITION,),
        "tables.position_pipelines:full_means",
    ),
    "position_phase0_tests": Artefact(
        "table", "Accuracy under each probe condition, with tests", (POSITION,),
        "tables.position:accuracy_tests",
    ),
    "position_figure1": Artefact(
        "figure", "Label-order sensitivity, illustrated and measured", (POSITION,),
        "figures.position:label_order",
    ),
    "position_figure2": Artefact(
        "figure", "Flip rates against accuracy, level by level of each factor", (POSITION,),
        "figures.factors:flips_against_accuracy",
    ),
    "position_figure3": Artefact(
        "figure", "Forest plot of flip rates, with the paper's models", (POSITION,),
        "figures.forest:flip_rate_forest", ("position/table2.csv",),
    ),
    "joint_table1": Artefact(
        "table", "Corrections in both instruments", (POSITION,),
        "tables.joint:all_methods",
    ),
    "joint_table2": Artefact(
        "table", "Balance learned under one label order, under the other", (POSITION,),
        "tables.joint:carry_over",
    ),
    "joint_figure1": Artefact(
        "figure", "Corrections between accuracy, COBias and flip rate", (POSITION,),
        "figures.joint:fronts",
    ),
}  # fmt: skip


def artefact_outputs(study: str, artefact: str) -> list[Path]:
    """Files of an artefact, the one to look at first."""
    if ARTEFACTS[artefact].kind == "table":
        return [paths.table(study, artefact, suffix) for suffix in (".csv", ".md", ".html")]
    return [paths.figure(study, artefact, suffix) for suffix in (".png", ".pdf")]
