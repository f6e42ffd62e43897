"""Joint configurations chosen from factors: the best level of each, the baseline where nothing beats it."""

from __future__ import annotations

from poise.config.factors import Factor
from poise.stages.select import combine

NAN = float("nan")


def factor(name: str, baseline: str, **levels: dict[str, object]) -> Factor:
    changes = {level: {"title": level, **change} for level, change in levels.items()}
    return Factor.model_validate(
        {"name": name, "title": name, "baseline": baseline, "levels": {baseline: {"title": baseline}, **changes}}
    )


SEPARATOR = factor("separator", "colon", space={"prompt": {"separator": "space"}}, tab={"prompt": {"separator": "tab"}})
SHOTS = factor("demo_count", "five", none={"shots": "0_per_class"}, one={"shots": "1_per_class"})


def means(**values: float) -> dict[tuple[str, str], dict[str, float]]:
    keys = {"base": ("", ""), "space": ("separator", "space"), "tab": ("separator", "tab"),
            "none": ("demo_count", "none"), "one": ("demo_count", "one")}  # fmt: skip
    return {keys[name]: {"accuracy": value, "p1": value} for name, value in values.items()}


def test_the_best_level_of_each_factor_is_taken() -> None:
    found = means(base=0.5, space=0.6, tab=0.7, none=0.4, one=0.55)
    assert combine([SEPARATOR, SHOTS], found, "accuracy") == {"prompt": {"separator": "tab"}, "shots": "1_per_class"}
    assert combine([SEPARATOR, SHOTS], found, "p1") == {"prompt": {}, "shots": "0_per_class"}  # fewest flips


def test_the_baseline_stays_where_nothing_beats_it() -> None:
    found = means(base=0.5, space=0.5, tab=0.5, none=0.5, one=0.5)
    for objective in ("accuracy", "p1"):
        assert combine([SEPARATOR, SHOTS], found, objective) == {"prompt": {}, "shots": None}


def test_a_level_without_a_number_is_no_candidate() -> None:
    found = means(base=0.2, space=0.3, tab=NAN, one=0.1)
    del found["demo_count", "one"]["p1"]
    assert combine([SEPARATOR, SHOTS], found, "p1") == {"prompt": {}, "shots": None}
