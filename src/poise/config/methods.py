"""Post-hoc corrections of class probabilities: what ``conf/method`` may say."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from poise.config.base import Line, Slug, Strict


class ICLMethod(Strict):
    """No correction: the most probable class."""

    kind: Literal["icl"]
    name: Slug
    title: Line


class DNIPMethod(Strict):
    """Debiasing as nonlinear integer programming: one weight a class, fitted on the optimisation rows."""

    kind: Literal["dnip"]
    name: Slug
    title: Line
    n_levels: int = Field(default=30, ge=2)
    beta: float = Field(default=2.7, ge=0)
    tau: float = Field(default=0.2, ge=0)
    mu: float | Literal["paper", "scaled"] = "paper"
    objective: Literal["cobias", "cobias_single", "odd_rate"] = "cobias"
    terms: list[Literal["error", "bias", "pmi"]] = Field(default=["error", "bias", "pmi"], min_length=1)
    solver: Literal["heat_bath", "metropolis", "exact"] = "heat_bath"
    limits: Literal["paper", "dcs"] = "paper"
    time_limit_s: float = Field(default=60.0, gt=0)
    rows: int | None = Field(default=None, gt=0)
    axis: Literal["class", "label_token"] = "class"
    fit_on: Literal["natural", "reversed", "pooled"] = "natural"
    tuning: Literal["fixed", "dev"] = "fixed"
    grid: dict[Literal["beta", "tau", "n_levels", "mu"], list[float]] | None = None
    selection: Literal["acc_then_cobias", "cobias_then_acc", "z"] = "acc_then_cobias"
    random_state: int = 1

    @model_validator(mode="after")
    def _grid_is_for_tuning(self) -> DNIPMethod:
        if self.tuning == "fixed" and self.grid is not None:
            raise ValueError("grid goes with tuning: dev; set tuning or leave grid null")
        return self


class BatchCalibrationMethod(Strict):
    """Divide by the mean probability of each class over the test batch (transductive)."""

    kind: Literal["batch_calibration"]
    name: Slug
    title: Line


class ContextualCalibrationMethod(Strict):
    """Divide by the probability of each class for content-free inputs: the first ``n_inputs`` of the experiment's."""

    kind: Literal["contextual_calibration"]
    name: Slug
    title: Line
    n_inputs: int = Field(default=1, ge=1)


class PriorMatchingMethod(Strict):
    """Weights that make the mean class probabilities match the class shares of the optimisation rows."""

    kind: Literal["prior_matching"]
    name: Slug
    title: Line
    prior: Literal["uniform", "labels"] = "uniform"


class LinearAdapterMethod(Strict):
    """A small residual network on the class probabilities, trained on a differentiable surrogate of the objective."""

    kind: Literal["linear_adapter"]
    name: Slug
    title: Line
    n_hidden: int = Field(default=64, gt=0)
    beta: float = Field(default=2.7, ge=0)
    tau: float = Field(default=0.2, ge=0)
    mu: float | Literal["paper", "scaled"] = "paper"
    random_state: int = 1


class LabelAveragingMethod(Strict):
    """Average the predictions under both label orders (position paper, G.3)."""

    kind: Literal["label_averaging"]
    name: Slug
    title: Line
    rounding: Literal["half_even", "half_up"] = "half_even"


class DemonstrationAveragingMethod(Strict):
    """Average the predictions under ascending and descending demonstrations (position paper, G.3)."""

    kind: Literal["demonstration_averaging"]
    name: Slug
    title: Line
    rounding: Literal["half_even", "half_up"] = "half_even"


class PriDeMethod(Strict):
    """Divide by the prior of each prompt position, from the test rows under both label orders (transductive)."""

    kind: Literal["pride"]
    name: Slug
    title: Line


# Methods that compare conditions of the position instrument.
POSITION_ONLY = (LabelAveragingMethod, DemonstrationAveragingMethod, PriDeMethod)

Method = Annotated[
    ICLMethod
    | DNIPMethod
    | BatchCalibrationMethod
    | ContextualCalibrationMethod
    | PriorMatchingMethod
    | LinearAdapterMethod
    | LabelAveragingMethod
    | DemonstrationAveragingMethod
    | PriDeMethod,
    Field(discriminator="kind"),
]
