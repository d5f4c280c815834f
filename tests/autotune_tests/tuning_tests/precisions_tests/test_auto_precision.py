"""``--precision auto`` on a small model; this machine is told that it has bf16, and which kernels are faster so."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

import autotune
from autotune.artifact.directory import read_artifact, read_tasks
from autotune.artifact.precision_choice import choice_of
from autotune.cli.main import main
from autotune.cli.text import run_lines
from autotune.events import TuningBegan
from autotune.host.machine import host_target
from autotune.options import Options, Precision
from autotune.report.facts import read_facts
from autotune.report.inspect_kernels import report_kernels
from autotune.report.page import render
from autotune.tuning.precisions import auto_precision
from autotune.tuning.precisions import product_times as product_times_module
from autotune.tuning.precisions.product_times import product_kernels, product_times
from autotune.tuning.run_plan import PartJob
from schedules.templates.by_hand.plain_attention import NAME as ATTENTION
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.fakes import fake_device
from tests.models import save
from tests.models.catalog import cached
from tests.models.transformer import encoder

MODEL = "tiny_cnn"
PRODUCTS = 4


@pytest.fixture
def options(tmp_path):
    return Options(
        out=tmp_path / "a.tuned", log=tmp_path / "t.db", threads=1, budget_s=60, trials=PRODUCTS, precision="auto"
    )


@pytest.fixture
def faster(monkeypatch):
    """A machine with bf16, on which these products are faster in it, and the model in more bf16 than in less."""

    def tell(*numbers):
        fake_device(monkeypatch)

        def times(fp32, bf16, feed):  # on a busy machine an untuned build may be installed, which has none
            return tuple(
                auto_precision.ProductTimes(number, number, 2.0, 1.0 if number in numbers else 3.0)
                for number in range(PRODUCTS)
            )

        monkeypatch.setattr(auto_precision, "has_bf16", lambda target: True)
        monkeypatch.setattr(auto_precision, "product_times", times)
        monkeypatch.setattr(auto_precision, "race", lambda runs: [-float(index) for index in range(len(runs))])

    return tell


def tuned(options, models=None, **more):
    return autotune.tune(models or cached(MODEL), Options(**{**vars(options), **more}))


def test_a_cpu_without_bf16_stays_in_fp32_and_says_why(options, monkeypatch):
    fake_device(monkeypatch)
    monkeypatch.setattr(auto_precision, "has_bf16", lambda target: False)
    result = tuned(options)
    assert read_artifact(options.out).precision == result.precision.precision == "fp32"
    assert any("no instructions for bf16" in line for line in run_lines(result))


def test_products_that_are_faster_in_bf16_are_where_the_error_allows(options, faster):
    faster(1, 2)
    result = tuned(options, accuracy=0.5)
    artifact = read_artifact(options.out)
    choice = choice_of(artifact.provenance)
    assert artifact.precision == choice.precision == "bf16:1,2"
    assert choice == result.precision
    assert [product.precision for product in choice.products] == ["fp32", "bf16", "bf16", "fp32"]
    assert 0 < choice.error < 0.5
    assert choice.bound == 0.5
    assert result.verified.passed
    assert result.verified.precision == "bf16:1,2"
    assert result.latency_ms["tuned"] == -2000.0  # of the race
    keys = {kernel.task.key for kernel in report_kernels(options.out)}
    assert {product.kernel for product in choice.products} <= keys
    assert "2 of 4 products in bf16" in " ".join(run_lines(result))
    assert json.loads(json.dumps(result.to_data()))["precision"]["precision"] == "bf16:1,2"


def test_kernels_between_precisions_have_a_budget_of_their_own(options, faster, monkeypatch, tmp_path):
    """Time that was spent on kernels of the model in fp32 or bf16 is counted there: a mixture had none left."""
    jobs, left = [], []
    real = auto_precision.AutoPrecision._job
    monkeypatch.setattr(
        auto_precision.AutoPrecision, "_job", lambda *arguments: jobs.append(real(*arguments)) or jobs[-1]
    )
    faster(1, 2)
    asked = Options(**{**vars(options), "accuracy": 0.5, "trials": 12, "log": tmp_path / "own.db"})
    autotune.tune(cached(MODEL), asked, lambda event: left.append(event.budget_s) if began(event) else None)
    fp32, bf16, mixed = (job.options for job in jobs)
    assert fp32.elsewhere == bf16.elsewhere == frozenset() != mixed.elsewhere
    assert left == [fp32.budget_s, pytest.approx(bf16.budget_s, rel=0.5), mixed.budget_s]


def began(event):
    return isinstance(event, TuningBegan)


@pytest.mark.slow
def test_tensor_cores_try_the_whole_model_in_tf32_too(options, faster, monkeypatch):
    """The processor of this machine computes it in fp32; the choice is what is shown."""
    faster(1)
    monkeypatch.setattr(auto_precision, "has_tf32", lambda target: True)
    monkeypatch.setattr(auto_precision, "race", lambda runs: [2.0, 3.0, 1.0, 4.0][: len(runs)])
    choice = tuned(options, accuracy=0.5).precision
    assert choice.precision == "tf32"
    assert [product.precision for product in choice.products] == ["tf32"] * PRODUCTS
    assert "4 of 4 products in tf32" in str(choice)


def test_an_error_above_the_bound_leaves_products_in_fp32(options, faster):
    """The bound lies between the errors of one product and of all."""
    faster(0, 1, 2, 3)
    free = tuned(options, accuracy=0.5)
    assert free.precision.precision == "bf16"
    result = tuned(options, accuracy=0.8 * free.precision.error)
    choice = result.precision
    short = [product for product in choice.products if product.precision == "bf16"]
    assert 0 < len(short) < PRODUCTS
    assert choice.error <= choice.bound < free.precision.error
    assert all(product.error > 0 for product in choice.products)
    rows = {kernel.task.key: kernel for kernel in report_kernels(options.out)}
    assert {rows[product.kernel].to_data()["precision"] for product in short} == {"bf16"}
    assert all(rows[product.kernel].error > 0 for product in choice.products)
    page = render(read_facts(options.out))
    assert "Chosen by <code>--precision auto</code>" in page
    assert "<th>error</th>" in page


def test_a_bound_that_no_bf16_keeps_leaves_all_in_fp32(options, faster):
    faster(0, 1, 2, 3)
    result = tuned(options, accuracy=1e-7)
    assert result.precision.precision == "fp32"
    assert read_artifact(options.out).precision == "fp32"


def test_the_error_is_that_of_the_users_inputs(options, faster, tmp_path):
    faster(0, 1, 2, 3)
    session = onnxruntime.InferenceSession(str(cached(MODEL)))
    (spec,) = session.get_inputs()
    samples = np.random.default_rng(5).standard_normal((3, *spec.shape[1:])).astype(np.float32)
    np.savez(tmp_path / "mine.npz", **{spec.name: samples})
    result = tuned(options, accuracy=0.5, calibration=tmp_path / "mine.npz")
    ours = autotune.InferenceSession(options.out)
    errors = scale = 0.0
    for sample in samples:
        feed = {spec.name: sample[None]}
        (mine,), (theirs,) = ours.run(None, feed), session.run(None, feed)
        errors, scale = errors + np.square(mine - theirs).sum(), scale + np.square(theirs).sum()
    assert result.precision.samples == 3
    assert result.precision.error == pytest.approx(np.sqrt(errors / scale), rel=1e-3)


def test_inputs_that_do_not_fit_are_refused_before_anything_is_tuned(options, faster, tmp_path):
    faster(0)
    np.savez(tmp_path / "mine.npz", wrong=np.zeros(3))
    log = tmp_path / "untouched.db"
    with pytest.raises(ModelError, match="has arrays wrong; the model's inputs are"):
        tuned(options, log=log, calibration=tmp_path / "mine.npz")
    assert not log.exists()


def test_a_build_from_the_log_takes_the_least_of_the_kernels_times(options, faster, monkeypatch):
    faster(1)
    tuned(options, accuracy=0.5)
    sums = {"fp32": 3.0, "bf16": 2.0, "bf16-1": 1.0}
    monkeypatch.setattr(auto_precision, "kernels_s", lambda path: sums[path.name])
    monkeypatch.setattr(auto_precision, "race", lambda runs: pytest.fail("a build measures nothing"))
    times, feeds = auto_precision.product_times, []
    monkeypatch.setattr(auto_precision, "product_times", lambda *asked: feeds.append(asked[2]) or times(*asked))
    result = tuned(options, accuracy=0.5, frozen=True, budget_s=None, trials=None)
    assert result.measured_trials == 0
    assert feeds == [None]
    assert result.precision.precision == "bf16:1"


def test_kernels_without_times_get_one_precision_and_that_is_said(options, faster, monkeypatch, caplog):
    faster(0, 1, 2, 3)
    monkeypatch.setattr(auto_precision, "product_times", lambda fp32, bf16, feed: ())
    result = tuned(options, accuracy=0.5)
    assert result.precision.precision == "bf16"
    assert "all products get the same precision" in caplog.text


def test_without_a_bound_it_is_what_openvinos_default_costs(options, faster):
    faster(0, 1)
    choice = tuned(options).precision
    assert "openvino-default" in choice.bound_of
    assert choice.error <= choice.bound or choice.precision == "fp32"


def test_products_are_paired_with_their_kernels(options, tmp_path, monkeypatch):
    """Untuned kernels have no times: they are timed by inferences, where those may be made."""
    paths = []
    for precision in ("fp32", "bf16"):
        paths.append(tmp_path / precision)
        tuned(options, out=paths[-1], precision=precision, trials=3, log=tmp_path / "few.db")
    feed = {spec.name: np.ones(spec.shape, np.float32) for spec in read_artifact(paths[0]).inputs}
    times = product_times(*paths, feed)
    assert [(product.number, product.place) for product in times] == [(number, number) for number in range(PRODUCTS)]
    assert all(0 < product.fp32_s < 1 and 0 < product.bf16_s < 1 for product in times)
    assert product_times(*paths, None) == ()
    assert product_times(paths[0], paths[0], feed) == ()

    calls = product_times_module._product_calls
    timed = lambda artifact: [replace(call, tuned_s=float(call.index)) for call in calls(artifact)]  # noqa: E731
    monkeypatch.setattr(product_times_module, "_product_calls", timed)
    places = [call.index for call in calls(read_artifact(paths[0]))]
    assert [product.fp32_s for product in product_times(*paths, None)] == places


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--accuracy", "1%"], "for --precision auto"),
        (["--precision", "auto", "--accuracy", "2"], "between 0 and 1"),
        (
            ["--precision", "auto", "--lanes", "auto"],
            "auto does not go with --lanes auto: .*; leave one out",
        ),
        (["--precision", "auto", "--effort", "instant"], "--effort instant"),
    ],
)
def test_what_does_not_go_with_it_is_refused(flags, told, capsys, tmp_path):
    assert main(["run", str(cached(MODEL)), "--log", str(tmp_path / "t.db"), *flags]) == 2
    assert __import__("re").search(told, capsys.readouterr().err)


def test_a_precision_is_chosen_for_each_of_several_models(options, faster, tmp_path):
    faster(1)
    result = tuned(options, out=tmp_path, accuracy=0.5, models=[cached(MODEL), cached("tiny_mlp")])
    assert [part.artifact.parent for part in result.parts] == [tmp_path, tmp_path]
    assert [part.precision.precision for part in result.parts] == ["bf16:1", "bf16:1"]
    assert all(part.verified.passed for part in result.parts)


def test_a_precision_is_chosen_for_each_set_of_shapes_and_number_of_threads(options, faster, tmp_path):
    faster(1)
    save("tiny_open_batch", tmp_path / "m.onnx")
    sets, rows = ({"rows": (1, 24)}, {"rows": (8, 24)}), np.ones((5, 24), np.float32)
    more = {"accuracy": 0.5, "shapes": sets, "objective": "balanced", "streams": 2, "threads": 2, "trials": 24}
    result = tuned(options, models=tmp_path / "m.onnx", **more)
    assert [(part.threads, part.precision is not None) for part in result.parts] == [(2, True), (1, True)] * 2
    assert result.verified.passed
    assert autotune.InferenceSession(result.artifact).run(None, {"rows": rows})[0].shape == (5, 10)


class Together:
    """Judges products whose errors magnify each other: n of them cost n² hundredths, as operands in ONNX Runtime."""

    def of_products(self, precision):
        return 0.01 * sum(number in precision for number in range(PRODUCTS)) ** 2


@pytest.mark.parametrize(("bound", "most"), [(0.1, 3), (0.05, 2), (0.02, 1), (0.005, 0)])
@pytest.mark.parametrize("real", [0.16, 0.32])
def test_a_set_is_judged_as_a_whole(options, bound, most, real):
    """And where the kernels cost twice what ONNX Runtime says of a set, so do others."""
    auto = auto_precision.AutoPrecision(PartJob(cached(MODEL), options, host_target()))
    everything = frozenset(range(PRODUCTS))
    auto._times = tuple(auto_precision.ProductTimes(number, number, 2.0, 1.0) for number in everything)
    auto._bound, auto._errors = bound * real / 0.16, {Precision(None): real}
    judged = auto._within_bound(Together(), everything, dict.fromkeys(everything, 1.0))
    assert len(judged) == most


def test_attention_counts_as_two_products(options, tmp_path):
    """It is one kernel in fp32, two in bf16; products keep the numbers that the graph gives them."""
    model = tmp_path / "model.onnx"
    onnx.save(encoder(layers=1, width=32, heads=2, sequence=64), model)
    paths = [tmp_path / precision for precision in ("fp32", "bf16")]
    for path in paths:
        tuned(options, model, out=path, precision=path.name, trials=0, log=tmp_path / "few.db")
    feed = {spec.name: np.ones(spec.shape, np.float32) for spec in read_artifact(paths[0]).inputs}
    times = product_times(*paths, feed)
    assert [product.number for product in times] == list(range(8))
    keys = [[product_kernels(path)[product.place] for product in times] for path in paths]
    tasks = {task.key: task.template for task in read_tasks(paths[0])[0]}
    attended = [product for product in times if tasks[keys[0][product.number]] == ATTENTION]
    assert len(attended) == 2
    assert attended[0].fp32_s == attended[1].fp32_s
    assert len({keys[1][product.number] for product in attended}) == 2
