"""Builds and runs every kernel of a MetaSchedule database with TVM alone: ``python plain_tvm.py FOLDER``.

Prints, per record, its program after scheduling, the largest difference from the unscheduled program's output, the
largest output, and whether TVM's own query for the workload gives this record.
"""

import json
import sys

import numpy as np
import tvm
import tvm_ffi
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase


def run(module, target, shapes):
    """The last parameter after running ``module`` on seeded numbers."""
    rng = np.random.default_rng(0)
    arrays = [tvm.runtime.tensor(rng.standard_normal(shape).astype(dtype)) for shape, dtype in shapes]
    tvm.compile(module, target=target)["main"](*arrays)
    return arrays[-1].numpy()


def main(folder):
    database = JSONDatabase(f"{folder}/database_workload.json", f"{folder}/database_tuning_record.json")
    told = []
    for record in database.get_all_tuning_records():
        workload = record.workload.mod
        schedule = Schedule(workload)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        shapes = [([int(extent) for extent in p.ty.shape], str(p.ty.dtype)) for p in workload["main"].params]
        ours, untuned = (run(module, record.target, shapes) for module in (schedule.mod, workload))
        best = database.query_schedule(workload, record.target, "main")
        told.append(
            {
                "script": str(schedule.mod.script()),
                "difference": float(np.abs(ours - untuned).max()),
                "scale": float(np.abs(untuned).max()),
                "best": bool(tvm_ffi.structural_equal(best.mod, schedule.mod)),
            }
        )
    assert not {"autotune", "schedules", "tuning_logs"} & {name.split(".")[0] for name in sys.modules}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
