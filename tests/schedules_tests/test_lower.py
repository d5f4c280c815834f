"""From a function and a config to a schedule: claims, keys, programs as text, and the ways to be refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te

import schedules
from schedules.config import Config
from schedules.lower import (
    BASELINE,
    LEAST_JOB_ROWS,
    POSITION_ROWS,
    ROW_GROUPS,
    WRITTEN_HERE,
    Spaces,
    assembly,
    claim,
    load_program,
    lower,
    normalise,
    program_of,
    task_key,
    template_name,
    tvm_target,
)
from schedules.target import Target
from schedules.templates.common.windows import Window
from schedules.templates.cpu.conv2d import Conv2dTemplate, conv2d
from schedules.templates.cpu.cpu_templates import CPU_TEMPLATES
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.cases import CASES, matmul_case
from tests.schedules_tests.programs import from_te

TARGET = Target(kind="llvm", isa="avx512", mcpu="skylake-avx512", threads=3)


def relu(*size: int, name: str = "x") -> object:
    x = te.placeholder(size, name=name)
    return from_te(x, te.compute(size, lambda *i: te.max(x(*i), 0.0), name="relu"))


def test_template_names_and_versions_are_identities() -> None:
    identities = [f"{template.name}/{template.version}" for template in CPU_TEMPLATES.templates]
    assert len(set(identities)) == len(identities)
    for case in CASES:
        claimed = claim(case.func, TARGET)
        assert claimed.space.identity in identities
        assert claimed.space.name == claimed.template


def test_a_config_of_no_template_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no template of this function is called magic/7"):
        lower(CASES[0].func, Config("magic/7", ()), TARGET)


def test_a_config_of_another_template_is_refused() -> None:
    conv, chain = CASES[0], next(case for case in CASES if case.template == "elementwise")
    with pytest.raises(ScheduleError, match="no template of this function"):
        lower(chain.func, claim(conv.func, TARGET).space.initial[0], TARGET)


def test_programs_come_back_from_text() -> None:
    for case in CASES:
        assert task_key(load_program(program_of(case.func))) == task_key(case.func)


def test_programs_do_not_say_where_this_program_is_installed() -> None:
    parsed = [text for case in CASES if "ir.SourceName" in (text := program_of(case.func))]
    assert parsed
    assert not any(str(Path(schedules.__file__).parent).replace("/", "\\/") in text for text in parsed)
    names = [path.name for path in (Path(schedules.__file__).parent / "templates" / "by_hand").glob("*.py")]
    assert all(any(f'"type":"ir.SourceName","data":"{name}"' in text for name in names) for text in parsed)


def test_programs_of_another_tvm_are_upgraded() -> None:
    program = program_of(relu(4))
    assert program.endswith(WRITTEN_HERE)
    older = program.replace("ir.Var", "tirx.Var").replace(WRITTEN_HERE, WRITTEN_HERE.replace(tvm.__version__, "0.1"))
    assert older != program
    assert program_of(load_program(older)) == program


def test_keys_ignore_names_and_tell_shapes_apart() -> None:
    assert task_key(relu(4, 8)) == task_key(relu(4, 8, name="other"))
    assert task_key(relu(4, 8)) != task_key(relu(8, 4))
    keys = [task_key(case.func) for case in CASES]
    assert len(set(keys)) == len(keys)


def test_normalising_is_idempotent_and_drops_what_fusion_leaves() -> None:
    func = relu(4)
    marked = func.with_attr("op_pattern", 2).with_attr("Primitive", True).with_attr("global_symbol", "fused_relu_7")
    assert task_key(normalise(marked)) == task_key(func) == task_key(normalise(func))


def test_the_baseline_needs_no_template() -> None:
    assert "main" in str(lower(relu(3, 5), BASELINE, TARGET).mod.script())


def test_a_target_becomes_tvms() -> None:
    target = tvm_target(TARGET)
    assert (str(target.attrs["mcpu"]), int(target.attrs["num-cores"])) == ("skylake-avx512", 3)


def test_an_empty_tensor_is_left_alone() -> None:
    x = te.placeholder((1, 2, 4, 4, 8), name="x")
    none = te.compute((1, 2, 0, 4, 8), lambda n, c, h, w, b: x[n, c, h, w, b] + 1.0, name="none")
    func = from_te(x, none)
    claimed = claim(func, TARGET)
    assert (claimed.template, claimed.space.knobs) == ("baseline", ())
    lower(func, BASELINE, TARGET)


def test_a_gate_that_scales_a_whole_map_is_no_tile() -> None:
    x, w = te.placeholder((1, 1, 1, 1, 8), name="x"), te.placeholder((1, 1, 1, 1, 8, 8), name="w")
    gate = conv2d(x, w, Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1)))
    y = te.placeholder((1, 1, 56, 56, 8), name="y")
    scaled = te.compute((1, 1, 56, 56, 8), lambda n, c, h, v, b: gate[n, c, 0, 0, b] * y[n, c, h, v, b], name="scaled")
    func = from_te(x, w, y, scaled)
    claimed = claim(func, TARGET)
    assert claimed.template == "generic"
    lower(func, claimed.space.initial[0], TARGET)


def test_a_template_that_fails_without_a_word_is_told_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    conv = CASES[0]

    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(Conv2dTemplate, "apply", fail)
    with pytest.raises(ScheduleError, match="does not apply: RuntimeError"):
        lower(conv.func, claim(conv.func, TARGET).space.initial[0], TARGET)


def test_kernels_that_no_template_writes_are_left_to_the_compiler() -> None:
    """The untuned program, and templates without assembly; a config of no template is refused as elsewhere."""
    conv, pool = CASES[0], next(case for case in CASES if case.template == "pool")
    assert assembly(conv.func, BASELINE, TARGET, "k") == ""
    assert assembly(pool.func, claim(pool.func, TARGET).space.initial[0], TARGET, "k") == ""
    written = assembly(conv.func, claim(conv.func, TARGET).space.initial[0], TARGET, "tune_k")
    assert "__tvm_ffi_tune_k:" in written.splitlines()
    with pytest.raises(ScheduleError, match="no template of this function is called magic/7"):
        assembly(conv.func, Config("magic/7", ()), TARGET, "k")


def test_products_of_open_rows_have_small_jobs() -> None:
    programs = {"long": program_of(matmul_case("long", 256, 24, 3, 16).func), "conv": program_of(CASES[0].func)}
    spaces = pickle.loads(pickle.dumps(Spaces(programs, TARGET, open_sizes=(256, 1))))
    whole = Spaces(programs, TARGET)
    assert spaces["conv"].knobs == whole["conv"].knobs
    most = max(256 // ROW_GROUPS, LEAST_JOB_ROWS)
    assert max(config["rows"] for config in whole["long"].sample(1000, np.random.default_rng(0))) > most
    assert {config["rows"] for config in spaces["long"].sample(1000, np.random.default_rng(0))} >= {most}
    assert all(config["rows"] <= most for config in spaces["long"].initial)


@pytest.mark.parametrize("batch", [8, 3])
def test_jobs_of_an_open_batch_make_rows_of_one_of_its_rows(batch: int) -> None:
    """144 rows: 8 of 18 or 3 of 48 positions, of which a job has eight at most."""
    programs = {"long": program_of(matmul_case("long", 144, 24, 3, 16).func)}
    space = Spaces(programs, TARGET, open_sizes=(batch, 144 // batch))["long"]
    made = {config["rows"] for config in space.sample(1000, np.random.default_rng(0))}
    apart = 144 // batch
    assert made
    assert all(apart % rows == 0 and rows <= POSITION_ROWS for rows in made)


def test_jobs_are_small_where_rows_of_the_batch_have_a_prime_length() -> None:
    programs = {"long": program_of(matmul_case("long", 4 * 127, 24, 3, 16).func)}
    space = Spaces(programs, TARGET, open_sizes=(4, 127))["long"]
    assert {config["rows"] for config in space.sample(1000, np.random.default_rng(0))} <= {1, 2, 4}


@pytest.mark.parametrize(("open_sizes", "chunks"), [((2, 32), {8}), ((2, 1), {1, 2, 8, 32}), ((3, 32), {1, 2, 8, 32})])
def test_elementwise_kernels_of_open_lengths_have_jobs_of_positions(
    open_sizes: tuple[int, int], chunks: set[int]
) -> None:
    """64 positions of 64 elements; kernels that do not make every position, or only rows that are open, stay."""
    programs = {"chain": program_of(relu(2, 32, 64))}
    space = Spaces(programs, replace(TARGET, threads=2), open_sizes=open_sizes)["chain"]
    assert {config["chunks"] for config in space.sample(1000, np.random.default_rng(0))} == chunks


def test_spaces_are_made_when_asked_for_once_and_travel() -> None:
    case = CASES[0]
    spaces = Spaces({"a": program_of(case.func), "none": "no program"}, TARGET)
    assert list(spaces) == ["a", "none"]  # what is not asked for is not even read
    assert spaces["a"] is spaces["a"]
    copied = pickle.loads(pickle.dumps(spaces))["a"]
    claimed = claim(case.func, TARGET)
    assert copied.knobs == spaces["a"].knobs == claimed.space.knobs
    assert template_name(case.func, TARGET) == claimed.template
    with pytest.raises(KeyError):
        spaces["b"]
