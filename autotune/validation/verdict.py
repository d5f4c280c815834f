"""The result of comparing an artifact's outputs with the reference's. Nothing here loads TVM or ONNX."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.validation.allowance import ATOL, RTOL

TOLERANCE = "tolerance"
"""The bound that is enough for most models: ATOL + RTOL·|x|."""


@dataclass(frozen=True)
class Verdict:
    """How far outputs are from the reference's.

    Attributes:
        reference: what they were compared with.
        max_abs_err: largest |ours - theirs|.
        max_rel_err: largest |ours - theirs| / |theirs| where |theirs| is above ATOL.
        passed: same shapes and types, and and of every output each element within ATOL + RTOL·|theirs|, or the whole
            within what the model's own arithmetic is worth (``autotune.validation.allowance``).
        mismatch: the first output of another shape or type, of integers that differ, or of NaN and infinities that the
            other side lacks, in words; the errors are those of all other numbers.
        bound: what decided: ``tolerance`` if that was enough; ``fp64`` or ``spread`` if the model's own arithmetic was
            asked, with or without results in 64 bits.
        allowed: that bound in words.
        precision: of the artifact, as ``options.Precision`` writes it.
        rms_rel_err: root mean square of the difference as a share of the reference's, the largest over outputs of
            floats.
    """

    reference: str
    max_abs_err: float
    max_rel_err: float
    passed: bool
    mismatch: str = ""
    bound: str = TOLERANCE
    allowed: str = f"{ATOL} + {RTOL}·|x|"
    precision: str = "fp32"
    rms_rel_err: float = 0.0

    @property
    def is_own_arithmetic(self) -> bool:
        """Whether the fixed tolerance was not enough and the model's own arithmetic was asked."""
        return self.bound != TOLERANCE

    @property
    def difference(self) -> str:
        """How far outputs are from the reference's, in words."""
        error = f"largest error {self.max_abs_err:.2g} absolute, {self.max_rel_err:.2g} relative"
        if self.precision != "fp32":
            error = f"{error}, {self.rms_rel_err:.2g} of the outputs' root mean square, in {self.precision}"
        return self.mismatch or error
