"""All tables and figures by id: what each shows, what it is made of, which function makes it. Light to import."""

from __future__ import annotations

import re
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
    reading
        How to read it, in a sentence or two; the report shows it beside the title.
    """

    kind: str
    title: str
    instruments: tuple[str, ...]
    maker: str
    reference: tuple[str, ...] = ()
    optional: bool = False
    reading: str = ""


ARTEFACTS = {
    "dnip_table1": Artefact(
        "table", "Confusion matrix before correction", (CLASS_ACCURACY,),
        "tables.imbalance:confusion_before", ("dnip/table1.csv",),
        reading="True classes down, predicted classes across, one run. A row's share on the diagonal is its class "
                "accuracy; a column that is too full is a class that starves others.",
    ),
    "dnip_table2": Artefact(
        "table", "Confusion matrix after DNIP", (CLASS_ACCURACY,),
        "tables.imbalance:confusion_after", ("dnip/table2.csv",),
        reading="The same run after DNIP: compare the column Acc. with the matrix before correction.",
    ),
    "dnip_table3": Artefact(
        "table", "Test accuracy and COBias, before and after DNIP", (CLASS_ACCURACY,),
        "tables.imbalance:main_table", ("dnip/table3.csv",),
        reading="Mean ± SD over seeds, in percent. Good is a lower COBias at no lower accuracy; a COBias near its "
                "floor is what equal class accuracies would show by chance. The second section has the change of each "
                "run with its interval.",
    ),
    "dnip_table4": Artefact(
        "table", "Optimisation time by solver", (CLASS_ACCURACY, TIMING),
        "tables.solver:optimisation_seconds", ("dnip/table4.csv",),
        reading="Seconds and evaluations to reach the objective; the gap says how far the best solution can be at "
                "most. Compare seconds within one run only.",
    ),
    "dnip_table5": Artefact(
        "table", "Label order in prompts and test scores", (CLASS_ACCURACY,),
        "tables.demonstrations:label_order", ("dnip/table5.csv",),
        reading="Does the class of the last, or the most frequent, demonstration win? One row a seed.",
    ),
    "dnip_table6": Artefact(
        "table", "Chain-of-thought prompting", (WRITTEN,),
        "tables.chain_of_thought:chain_of_thought", ("dnip/table6.csv",), optional=True,
        reading="Plain prompts beside prompts with reasons, on the same rows; label probabilities are read where the "
                "label starts and after it.",
    ),
    "dnip_table7": Artefact(
        "table", "Answer-token confusion matrix of ChatGPT on DDI", (WRITTEN,),
        "tables.answer_token:chatgpt_answer_token", ("dnip/table7.csv",), optional=True,
        reading="Written answers of a model behind an API: the last column counts answers that name no class.",
    ),
    "dnip_table8": Artefact(
        "table", "Answer-token confusion matrix of a local model", (WRITTEN,),
        "tables.answer_token:local_answer_token", ("dnip/table8.csv",), optional=True,
        reading="Written answers of a local model: the last column counts answers that name no class.",
    ),
    **{
        f"dnip_table{8 + slot}": Artefact(
            "table", f"Three DNIP objectives compared: {dataset}, or another data set of the study", (CLASS_ACCURACY,),
            f"tables.objectives:slot_{slot}", (f"dnip/table{8 + slot}.csv",),
            reading="Scores and all class accuracies of the three objectives, mean ± SD over seeds, in percent.",
        )
        for slot, dataset in enumerate(("DBpedia", "AGNews", "DDI", "TREC", "RTE", "SST-5", "PubMedQA"), start=1)
    },
    "dnip_table16": Artefact(
        "table", "DNIP by size of the optimisation set", (CLASS_ACCURACY,),
        "tables.sizes:optimisation_sizes", ("dnip/table16.csv",),
        reading="How few labelled rows DNIP needs: scores by the number of optimisation rows.",
    ),
    "dnip_methods": Artefact(
        "table", "Comparison of corrections on the same probabilities", (CLASS_ACCURACY,),
        "tables.methods:comparison",
        reading="Corrections fitted on the same probabilities, ranked by accuracy and by COBias; transductive ones "
                "have seen the test texts, never their labels.",
    ),
    "dnip_figure1": Artefact(
        "figure", "Class-accuracy imbalance and where its correction acts", (CLASS_ACCURACY,),
        "figures.illustration:imbalance_and_correction",
        reading="Below, class accuracies before and after correction; above, where between model and prediction the "
                "class weights act.",
    ),
    "dnip_figure2": Artefact(
        "figure", "Objective and temperature curves of the paper's annealing", (CLASS_ACCURACY,),
        "figures.annealing:annealing_curves",
        reading="Objective and temperature over the steps of annealing: the objective should level off before the "
                "temperature does.",
    ),
    "dnip_figure3": Artefact(
        "figure", "Ablation of the objective's terms", (CLASS_ACCURACY,),
        "figures.comparison:ablations",
        reading="Methods down, percent across, whiskers are SDs over seeds; vertical lines are plain ICL. Each method "
                "leaves out a term of the objective.",
    ),
    "dnip_figure4": Artefact(
        "figure", "Test scores when optimising COBias_single", (CLASS_ACCURACY,),
        "figures.comparison:cobias_single",
        reading="Three scores where the objective takes COBias_single in place of COBias.",
    ),
    "dnip_figure5": Artefact(
        "figure", "Comparison of corrections: accuracy and COBias", (CLASS_ACCURACY,),
        "figures.comparison:peers",
        reading="Methods down, percent across, whiskers are SDs over seeds; vertical lines are plain ICL.",
    ),
    "dnip_figure6": Artefact(
        "figure", "The process of DNIP on one data set", (CLASS_ACCURACY,),
        "figures.illustration:process",
        reading="From prompt to prediction on one data set: odd classes, class accuracies and the weights that "
                "correct them.",
    ),
    "dnip_figure7": Artefact(
        "figure", "Test confusion matrices before and after DNIP", (CLASS_ACCURACY,),
        "figures.imbalance:confusion_matrices",
        reading="Brighter is a larger share of the true class. Before correction columns stand out, after it the "
                "diagonal should.",
    ),
    "dnip_figure8": Artefact(
        "figure", "Pairwise class-accuracy differences before and after DNIP", (CLASS_ACCURACY,),
        "figures.imbalance:pairwise_differences",
        reading="Absolute difference of class accuracies for each pair of classes, mean over seeds: brighter is less "
                "fair. COBias is their mean.",
    ),
    "position_table1": Artefact(
        "table", "Ordered data sets", (POSITION,),
        "tables.position:datasets_overview", ("position/table1.csv",),
        reading="Classes m, demonstrations D and rows of each data set that has an order of classes.",
    ),
    "position_table2": Artefact(
        "table", "Position sensitivity: prediction flip rates", (POSITION,),
        "tables.position:flip_rates", ("position/table2.csv",),
        reading="Share of rows whose prediction changes, in percent, with its interval: P1 reversed labels, P2 "
                "reordered demonstrations, P3 moved demonstrations. What does not exceed the floor, or the noise of "
                "sampling, is no effect.",
    ),
    "position_table3": Artefact(
        "table", "Factor families and configurations", (POSITION,),
        "tables.position_design:factor_families", ("position/table3.csv",),
        reading="Which factors were varied, level by level, and which level the baseline has.",
    ),
    "position_table4": Artefact(
        "table", "Phase 1 factor residuals", (POSITION,),
        "tables.position_factors:residual_table", ("position/table4.csv",),
        reading="Each level minus the baseline of the same run, times 100: minus is fewer flips in a flip rate, worse "
                "in a score.",
    ),
    "position_table5": Artefact(
        "table", "Cross-model residuals under the same configurations", (POSITION,),
        "tables.position_transfer:residual_table", ("position/table5.csv",),
        reading="Each model minus the baseline model under the same configuration, times 100.",
    ),
    "position_table6": Artefact(
        "table", "Pipeline residuals: paradigms, aggregation, debiasing", (POSITION,),
        "tables.position_pipelines:residual_table", ("position/table6.csv",),
        reading="Each pipeline minus the pointwise baseline, times 100: paradigms, aggregation rules, debiasing "
                "methods.",
    ),
    "position_table9": Artefact(
        "table", "Hidden tokens beside sampling noise", (POSITION,),
        "tables.position_tokens:hidden_tokens", ("position/table2.csv",),
        reading="Tokens of an answer, hidden ones apart, beside the flip rates of sampled text.",
    ),
    "position_table12": Artefact(
        "table", "Phase 1 performance, mean and SD", (POSITION,),
        "tables.position_factors:performance_means",
        reading="Scores at every level, mean ± SD over seeds, behind the residuals.",
    ),
    "position_table13": Artefact(
        "table", "Phase 1 flip rates, mean and SD", (POSITION,),
        "tables.position_factors:flip_means",
        reading="Flip rates at every level, mean ± SD over seeds, behind the residuals.",
    ),
    "position_table14": Artefact(
        "table", "Configurations on each model, mean and SD", (POSITION,),
        "tables.position_transfer:full_means",
        reading="Every configuration on every model, mean ± SD over seeds, behind the residuals across models.",
    ),
    "position_table15": Artefact(
        "table", "Pipelines, mean and SD", (POSITION,),
        "tables.position_pipelines:full_means",
        reading="Every pipeline, mean ± SD over seeds, behind its residuals.",
    ),
    "position_phase0_tests": Artefact(
        "table", "Accuracy under each probe condition, with tests", (POSITION,),
        "tables.position:accuracy_tests",
        reading="Whether accuracy itself changes under a probe: McNemar's test for two conditions, Cochran's Q for "
                "all.",
    ),
    "position_figure1": Artefact(
        "figure", "Label-order sensitivity, illustrated and measured", (POSITION,),
        "figures.position:label_order",
        reading="One text under both label orders, and what share of texts is answered differently.",
    ),
    "position_figure2": Artefact(
        "figure", "Flip rates against accuracy, level by level of each factor", (POSITION,),
        "figures.factors:flips_against_accuracy",
        reading="One panel a factor; the star is the baseline. Good is to the right and down: more accurate, fewer "
                "flips.",
    ),
    "position_figure3": Artefact(
        "figure", "Forest plot of flip rates, with the paper's models", (POSITION,),
        "figures.forest:flip_rate_forest", ("position/table2.csv",),
        reading="Points are flip rates, lines their Wilson intervals, the orange lines at zero the numerical floor. "
                "The paper's models stand below as a backdrop.",
    ),
    "joint_table1": Artefact(
        "table", "Corrections in both instruments", (POSITION,),
        "tables.joint:all_methods",
        reading="Every correction in both instruments on the same rows: does a fairer classifier flip less, or more?",
    ),
    "joint_table2": Artefact(
        "table", "Balance learned under one label order, under the other", (POSITION,),
        "tables.joint:carry_over",
        reading="Weights learned under one label order, used under the other: what is lost of the gain.",
    ),
    "joint_figure1": Artefact(
        "figure", "Corrections between accuracy, COBias and flip rate", (POSITION,),
        "figures.joint:fronts",
        reading="Each point is a correction; good is to the right and down. What lies to the left of the stepped "
                "line, or above it, is beaten in both values by a point on it.",
    ),
}  # fmt: skip


_PAPERS = {"dnip": "DNIP paper", "position": "position paper"}


def location(artefact: str) -> str:
    """Where a paper has an artefact: ``DNIP paper, Table 3``; or that no paper has it."""
    paper, _, place = artefact.partition("_")
    numbered = re.fullmatch(r"(table|figure)(\d+)", place)
    if paper in _PAPERS and numbered:
        return f"{_PAPERS[paper]}, {numbered[1].capitalize()} {numbered[2]}"
    return f"beside the {_PAPERS[paper]}" if paper in _PAPERS else "of Poise's own: in neither paper"


def artefact_outputs(study: str, artefact: str) -> list[Path]:
    """Files of an artefact, the one to look at first."""
    if ARTEFACTS[artefact].kind == "table":
        return [paths.table(study, artefact, suffix) for suffix in (".csv", ".md", ".html", ".tex")]
    return [paths.figure(study, artefact, suffix) for suffix in (".png", ".pdf")]
