import subprocess
import sys

import pytest

from autotune.versions import TESTED_FFI, TESTED_TVM, check_versions, describe
from schedules.vocabulary.errors import InstallError


def versions(tvm, ffi):
    return {"apache-tvm": tvm, "apache-tvm-ffi": ffi}.get


def test_tested_pair_passes_in_silence(caplog):
    check_versions(versions(TESTED_TVM, TESTED_FFI))
    assert not caplog.records


@pytest.mark.parametrize(
    ("tvm", "ffi"),
    [
        (TESTED_TVM, "0.1.15"),
        (TESTED_TVM, "0.1.15.post2"),
        (TESTED_TVM, "0.1.15rc1"),
        (TESTED_TVM, "0.2.0"),
        ("0.25.0", TESTED_FFI),
        ("0.26.0", TESTED_FFI),
        ("0.26.0.post1", "0.1.12"),
        ("nonsense", TESTED_FFI),
        (None, TESTED_FFI),
        (TESTED_TVM, None),
    ],
)
def test_bad_pair_is_refused_in_one_line_with_its_remedy(tvm, ffi):
    with pytest.raises(InstallError) as caught:
        check_versions(versions(tvm, ffi))
    message = str(caught.value)
    assert "\n" not in message
    assert f'pip install "apache-tvm=={TESTED_TVM}" "apache-tvm-ffi=={TESTED_FFI}"' in message
    for version in (tvm, ffi):
        assert version is None or version in message


def test_untested_pair_is_a_warning(caplog):
    check_versions(versions("0.28.0", TESTED_FFI))
    assert "untested" in caplog.text


def test_installed_pair_is_checked_without_importing_tvm():
    code = "import sys; from autotune.versions import check_versions as c; c(); sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_describe_is_one_line_that_names_what_decides_results():
    text = describe(versions("0.27.0.post1", "0.1.14.post1"))
    assert "\n" not in text
    assert "apache-tvm 0.27.0.post1" in text
    assert "onnx not installed" in text
