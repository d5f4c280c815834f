// What runs a compiled program (core.cc): for autotune/backends/cpu/native_executor.py, which loads it with every
// artifact, and for exported C libraries (autotune/exchange/c_library/library.cc).
#ifndef TUNE_CORE_H
#define TUNE_CORE_H

#include <stddef.h>
#include <stdint.h>

#ifndef TUNE_API
#define TUNE_API __attribute__((visibility("default")))
#endif

extern "C" {

enum {
  TUNE_OK = 0,
  TUNE_INVALID = 1,
  TUNE_NO_MEMORY = 2,
  TUNE_NO_THREADS = 3,
  TUNE_FAILED = 4,
  TUNE_CANCELLED = 5,
  TUNE_BUSY = 6
};

// A program. The words, 64-bit integers, position-independent, in this order:
//   bytes of the arena
//   inputs, then the bytes of each
//   outputs, then each: place, index, bytes
//   groups of calls, then each: first thread, threads (0: all), groups to wait for and their numbers, calls, then each:
//     kernel, operands, then each: place, index, type code, bits, rank, shape
//   of all calls again: where the arena has room for what their kernels ask for while they run, and bytes (0: nowhere)
//   number of open sizes, two at most, plus 4 if what is last in this list follows, and of each: its rows, and of all
//     calls again: jobs of the parallel loop, jobs that make the same rows next to each other, groups of rows (0: the
//     size leaves no job of the call out), rows of a group, how many times all rows stand in the result, and bytes of a
//     row that is zero where it does not count (0: it may be anything). Jobs of a size lie within a group of the size
//     before it.
//   calls that are made only if a boolean has some value, and of each: the call's number, the value, and the boolean as
//     an operand
//   calls whose rows follow an open size in another way than as many, or whose jobs are not those of its first loop, and
//     of each: the call's number, the size's, the loop's, and two steps, each a factor, what is added and a divisor
// Places: 0 arena (the index is a byte offset), 1 input, 2 weight (the index is a number).
struct tune_program {
  const int64_t* words;
  void* const* kernels;         // packed functions of TVM's, by the numbers that calls name
  const void* const* weights;   // by the numbers that operands name; aligned to 64 bytes
};

struct tune_settings {
  int64_t threads;      // the caller's thread and threads - 1 more
  // Logical CPU of each; -1: wherever the system likes; -2: so too, and it sleeps while it waits; -3 - n: on CPU n, on
  // which no thread computes, and which it yields all the time while it waits.
  const int64_t* cpus;
  int64_t huge_pages;   // whether to ask for huge pages for the arena
};

struct tune_report {
  int64_t group;    // number of the group that failed, or -1
  char text[248];   // what went wrong; empty if nothing did
};

struct tune_core;

TUNE_API int tune_core_open(const tune_program* program, const tune_settings* settings, tune_core** core,
                            tune_report* report);

// Runs the program once. Safe from several threads: they take turns.
//   inputs, outputs: dense arrays; the caller's memory, of any alignment
//   times: null, or room for the begin and the end, in nanoseconds, of every group and then of every call
TUNE_API int tune_core_run(tune_core* core, const void* const* inputs, void* const* outputs, int64_t* times,
                           tune_report* report);

struct tune_request;

// As tune_core_run, for a request (or null): a run of one that is marked as cancelled ends before its next kernel, also
// if the mark came before the run began.
TUNE_API int tune_core_run_request(tune_core* core, const void* const* inputs, void* const* outputs, int64_t* times,
                                   tune_report* report, const tune_request* request);

// Steps in which rows of a result may follow an open size.
TUNE_API int tune_core_growth_steps(void);

// As tune_core_run_request, if of each of the program's open sizes only the first live[i] rows count (null: all): jobs
// that make others alone are left out. There are two numbers; those of sizes that the program does not have are not used.
TUNE_API int tune_core_run_sizes(tune_core* core, const void* const* inputs, void* const* outputs, int64_t* times,
                                 tune_report* report, const tune_request* request, const int64_t* live);

// Runs the program `count` times, as one call: run i reads its inputs, and writes its outputs, behind those of run i - 1.
// A call that fails or is cancelled leaves the outputs of the runs that are left as they are.
TUNE_API int tune_core_run_rows(tune_core* core, const void* const* inputs, void* const* outputs, tune_report* report,
                                const tune_request* request, int64_t count);

// The run that is on ends before its next kernel. Safe from any thread. A run that begins meanwhile may not notice: a
// request does, if its `cancelled` is set before this call.
TUNE_API void tune_core_cancel(tune_core* core);

// Ends the threads and frees everything. No run may be on.
TUNE_API void tune_core_close(tune_core* core);

// Streams: cores of one program, each with a CPU or more of its own. Whoever asks for one gets the first that is free, in
// the order in which they asked. Between the end of a run and the begin of the next one on its stream there is a wake-up
// and nothing else: a request that waits has its arguments ready, and its thread is sent to the stream's CPU by the one
// that leaves it.
struct tune_stream {
  tune_core* core;
  // Those of the core's library: tune_core_run_request, and tune_core_cancel.
  int (*run)(tune_core*, const void* const*, void* const*, int64_t*, tune_report*, const tune_request*);
  void (*cancel)(tune_core*);
  int64_t cpu;  // of the caller's thread; negative: wherever the system likes
};

// A request; zeros before it is used, and only used once. Valid until the call that it was given to has returned.
struct tune_request {
  int32_t state, stream, cancelled, thread;
  tune_request* next;
};

struct tune_streams;

TUNE_API int tune_streams_open(const tune_stream* streams, int64_t count, tune_streams** made);
TUNE_API void tune_streams_close(tune_streams* streams);

// TUNE_OK and request->stream, which is the caller's until tune_streams_give; TUNE_BUSY after timeout_ns (negative: none)
// or TUNE_CANCELLED.
TUNE_API int tune_streams_take(tune_streams* streams, tune_request* request, int64_t timeout_ns);
TUNE_API void tune_streams_give(tune_streams* streams, tune_request* request);

// Takes a stream, runs as tune_core_run does, and gives it back.
TUNE_API int tune_streams_run(tune_streams* streams, tune_request* request, int64_t timeout_ns, const void* const* inputs,
                              void* const* outputs, tune_report* report);

// One run by a caller that keeps the address of an array `at` bytes into an object, as NumPy does: so it hands objects
// over and looks nothing up. `places` holds `inputs` of them and then the outputs, `arrays` in all.
struct tune_call {
  tune_streams* streams;
  int64_t at, inputs, arrays;
  tune_report report;
  int64_t timeout_ns;
  tune_request request;
  const void* places[1];
};

// As tune_streams_run. Replaces the objects by the arrays' addresses.
TUNE_API int tune_streams_call(tune_call* call);

// Ends the wait, or the run before its next kernel, of this request alone. Safe from any thread.
TUNE_API void tune_streams_cancel(tune_streams* streams, tune_request* request);

// Cancels every request that runs. Safe from any thread.
TUNE_API void tune_streams_cancel_runs(tune_streams* streams);

// For functions given as kernels: why the call that is about to return a value other than 0 failed.
TUNE_API void tune_core_raise(const char* text);

// Kernels of another library than the one that holds the core run their parallel loops on the core whose addresses
// are given: launch, barrier, workspace and its end, as tune_core_hooks tells them.
TUNE_API void tune_core_hooks(void** hooks);
TUNE_API void tune_core_adopt(void* const* hooks);
}

#endif
