// Runs a flat program on lanes: groups of kernel calls in a fixed order per thread, with waits where data crosses.
//
// Linked into every artifact beside its kernels. One call runs the whole model: Python is not in the way between
// kernels, and the interpreter's lock is not held meanwhile.
//
//   thread       one core. Thread 0 is the caller; the others belong to the machine, are pinned, and spin for
//                IDLE_NS after a run before they sleep.
//   group        a subgraph: calls that run in a row on a team of threads [first, first + size). Its leader is the
//                first thread. The others help: they run their share of every parallel loop that the leader meets.
//   order        every thread has its list of groups. A leader waits for the groups that its own group needs, a
//                helper until the leader is done. After an error or a cancellation the calls that are left are skipped,
//                but every group is still marked as done: nobody waits for ever.
//
// Kernels find the parallel loop through a pointer in their own library; adopt() points it here, so teams of several
// sizes share the same threads and no core ever has two threads that spin.

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>

#include <tvm/ffi/c_api.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

typedef int (*Lambda)(int task, void* env, void* data);

// As TVM's TVMParallelGroupEnv.
struct Env {
  void* sync;
  int32_t num_task;
};

extern "C" __attribute__((weak)) void* __TVMBackendParallelLaunch;
extern "C" __attribute__((weak)) void* __TVMBackendParallelBarrier;

namespace {

const int64_t IDLE_NS = 2000000;
const int SPINS = 1000;  // pauses before a waiting thread offers its core to others, some 20 microseconds

struct Call {
  void* self;
  TVMFFISafeCallType function;
  TVMFFIAny* args;
  int32_t count;
};

struct Patch {
  DLTensor* tensor;
  int64_t input;
};

struct alignas(64) Flag {
  std::atomic<uint64_t> value;
};

struct Group {
  int64_t first, size;
  int64_t waits_count;
  int64_t* waits;
  int64_t calls_count;
  Call* calls;
  int64_t began_ns, ended_ns;
  // The parallel loop that the leader is at.
  Lambda lambda;
  void* data;
  Env env;
  Flag done;         // the last run in which the group was done
  Flag launches;     // parallel loops so far
  Flag pending;      // helpers that have not finished the loop
  Flag arrived;      // threads at the barrier
  uint64_t* seen;    // launches that each thread of the team has run
};

struct Machine {
  int64_t threads_count;
  int64_t* cpus;
  int64_t groups_count;
  Group* groups;
  int64_t* items_count;
  int64_t** items;
  int64_t patches_count;
  Patch* patches;
  pthread_t* threads;
  pthread_mutex_t running, sleeping;
  pthread_cond_t wake;
  Flag epoch, sleepers, stop, abort, failed;  // failed: number of the group, plus one
  Flag* finished;
  std::atomic<TVMFFIObjectHandle> error;
};

struct Start {
  Machine* machine;
  int64_t thread;
};

// The group that this thread leads, if it does; elsewhere parallel loops run on the one thread that meets them.
thread_local Group* leading = nullptr;

inline void relax(int* spins) {
  if (*spins < SPINS) {
    ++*spins;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  } else {
    sched_yield();
  }
}

inline int64_t now_ns() {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

inline uint64_t get(const Flag& flag) { return flag.value.load(std::memory_order_acquire); }
inline void set(Flag& flag, uint64_t value) { flag.value.store(value, std::memory_order_release); }

// The first error of a run is kept; later ones follow from it or do not matter beside it.
void keep_error(Machine* machine, int64_t group) {
  TVMFFIObjectHandle raised = nullptr;
  TVMFFIErrorMoveFromRaised(&raised);
  uint64_t none = 0;
  if (machine->failed.value.compare_exchange_strong(none, static_cast<uint64_t>(group + 1))) {
    machine->error.store(raised);
  } else if (raised != nullptr) {
    TVMFFIObjectDecRef(raised);
  }
  set(machine->abort, 1);
}

int run_share(Group* group, int64_t member) {
  int failed = 0;
  for (int64_t task = member; task < group->env.num_task; task += group->size) {
    failed |= group->lambda(static_cast<int>(task), &group->env, group->data);
  }
  return failed;
}

void help(Machine* machine, Group* group, int64_t thread, uint64_t epoch) {
  int64_t member = thread - group->first;
  int spins = 0;
  for (;;) {
    if (get(group->launches) != group->seen[member]) {
      ++group->seen[member];
      if (run_share(group, member) != 0) keep_error(machine, group - machine->groups);
      group->pending.value.fetch_sub(1, std::memory_order_acq_rel);
      spins = 0;
    } else if (get(group->done) == epoch) {
      return;
    } else {
      relax(&spins);
    }
  }
}

void lead(Machine* machine, Group* group, uint64_t epoch) {
  for (int64_t i = 0; i < group->waits_count; ++i) {
    int spins = 0;
    while (get(machine->groups[group->waits[i]].done) != epoch) relax(&spins);
  }
  leading = group;
  group->began_ns = now_ns();
  for (int64_t i = 0; i < group->calls_count && !get(machine->abort); ++i) {
    Call* call = &group->calls[i];
    TVMFFIAny result;
    memset(&result, 0, sizeof(result));
    if (call->function(call->self, call->args, call->count, &result) != 0) {
      keep_error(machine, group - machine->groups);
    } else if (result.type_index >= kTVMFFIStaticObjectBegin && result.v_obj != nullptr) {
      TVMFFIObjectDecRef(result.v_obj);
    }
  }
  group->ended_ns = now_ns();
  leading = nullptr;
  set(group->done, epoch);
}

void run_items(Machine* machine, int64_t thread, uint64_t epoch) {
  for (int64_t i = 0; i < machine->items_count[thread]; ++i) {
    Group* group = &machine->groups[machine->items[thread][i]];
    if (group->first == thread) {
      lead(machine, group, epoch);
    } else {
      help(machine, group, thread, epoch);
    }
  }
  set(machine->finished[thread], epoch);
}

// Returns when there is a new run, or the machine is to stop.
void await_run(Machine* machine, uint64_t seen) {
  int64_t since = now_ns();
  int spins = 0;
  for (uint64_t turn = 1; get(machine->epoch) == seen && !get(machine->stop); ++turn) {
    relax(&spins);
    if (turn % 64 != 0 || now_ns() - since < IDLE_NS) continue;
    pthread_mutex_lock(&machine->sleeping);
    machine->sleepers.value.fetch_add(1);
    while (machine->epoch.value.load() == seen && !get(machine->stop)) {
      pthread_cond_wait(&machine->wake, &machine->sleeping);
    }
    machine->sleepers.value.fetch_sub(1);
    pthread_mutex_unlock(&machine->sleeping);
  }
}

void wake_all(Machine* machine) {
  pthread_mutex_lock(&machine->sleeping);
  pthread_cond_broadcast(&machine->wake);
  pthread_mutex_unlock(&machine->sleeping);
}

void pin(int64_t cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<int>(cpu), &one);
  pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

void* serve(void* argument) {
  Start start = *static_cast<Start*>(argument);
  free(argument);
  if (start.machine->cpus[start.thread] >= 0) pin(start.machine->cpus[start.thread]);
  uint64_t seen = 0;
  for (;;) {
    await_run(start.machine, seen);
    if (get(start.machine->stop)) return nullptr;
    seen = get(start.machine->epoch);
    run_items(start.machine, start.thread, seen);
  }
}

int launch(Lambda lambda, void* data, int num_task) {
  Group* group = leading;
  if (group == nullptr || group->size == 1 || num_task == 1) {
    Env env = {nullptr, 1};
    return lambda(0, &env, data);
  }
  group->lambda = lambda;
  group->data = data;
  group->env.sync = group;
  group->env.num_task = num_task == 0 ? static_cast<int32_t>(group->size) : num_task;
  set(group->arrived, 0);
  set(group->pending, static_cast<uint64_t>(group->size - 1));
  group->launches.value.fetch_add(1, std::memory_order_acq_rel);
  leading = nullptr;  // a loop inside the loop runs where it is
  int failed = run_share(group, 0);
  leading = group;
  int spins = 0;
  while (get(group->pending) != 0) relax(&spins);
  return failed;
}

int barrier(int, Env* env) {
  if (env->num_task == 1) return 0;
  Group* group = static_cast<Group*>(env->sync);
  uint64_t size = static_cast<uint64_t>(env->num_task);
  uint64_t target = (group->arrived.value.fetch_add(1, std::memory_order_acq_rel) / size + 1) * size;
  int spins = 0;
  while (get(group->arrived) < target) relax(&spins);
  return 0;
}

const int64_t* read_group(const int64_t* at, Machine* machine, Group* group) {
  group->first = *at++;
  group->size = *at++;
  group->seen = static_cast<uint64_t*>(calloc(static_cast<size_t>(group->size), sizeof(uint64_t)));
  group->waits_count = *at++;
  group->waits = static_cast<int64_t*>(malloc(sizeof(int64_t) * static_cast<size_t>(group->waits_count + 1)));
  for (int64_t i = 0; i < group->waits_count; ++i) group->waits[i] = *at++;
  group->calls_count = *at++;
  group->calls = static_cast<Call*>(calloc(static_cast<size_t>(group->calls_count + 1), sizeof(Call)));
  for (int64_t i = 0; i < group->calls_count; ++i) {
    Call* call = &group->calls[i];
    call->self = reinterpret_cast<void*>(*at++);
    call->function = TVMFFIFunctionGetCellPtr(call->self)->safe_call;
    TVMFFIObjectIncRef(call->self);
    call->count = static_cast<int32_t>(*at++);
    call->args = static_cast<TVMFFIAny*>(calloc(static_cast<size_t>(call->count + 1), sizeof(TVMFFIAny)));
    for (int32_t j = 0; j < call->count; ++j) {
      int64_t is_input = *at++, place = *at++, code = *at++, bits = *at++, rank = *at++;
      DLTensor* tensor = static_cast<DLTensor*>(calloc(1, sizeof(DLTensor)));
      tensor->device = {kDLCPU, 0};
      tensor->dtype = {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
      tensor->ndim = static_cast<int32_t>(rank);
      tensor->shape = static_cast<int64_t*>(malloc(2 * sizeof(int64_t) * static_cast<size_t>(rank + 1)));
      tensor->strides = tensor->shape + rank;
      for (int64_t d = 0; d < rank; ++d) tensor->shape[d] = *at++;
      int64_t stride = 1;
      for (int64_t d = rank - 1; d >= 0; --d) {
        tensor->strides[d] = stride;
        stride *= tensor->shape[d];
      }
      if (is_input) {
        size_t count = static_cast<size_t>(machine->patches_count + 1);
        machine->patches = static_cast<Patch*>(realloc(machine->patches, count * sizeof(Patch)));
        machine->patches[machine->patches_count++] = {tensor, place};
      } else {
        tensor->data = reinterpret_cast<void*>(place);
      }
      call->args[j].type_index = kTVMFFIDLTensorPtr;
      call->args[j].v_ptr = tensor;
    }
  }
  return at;
}

Machine* machine_of(const TVMFFIAny* args) { return reinterpret_cast<Machine*>(args[0].v_int64); }

void free_group(Group* group) {
  for (int64_t i = 0; i < group->calls_count; ++i) {
    Call* call = &group->calls[i];
    for (int32_t j = 0; j < call->count; ++j) {
      DLTensor* tensor = static_cast<DLTensor*>(call->args[j].v_ptr);
      free(tensor->shape);
      free(tensor);
    }
    free(call->args);
    TVMFFIObjectDecRef(call->self);
  }
  free(group->calls);
  free(group->waits);
  free(group->seen);
}

int answer(TVMFFIAny* result, int64_t value) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = value;
  return 0;
}

}  // namespace

// () → addresses of launch and barrier, for adopt() of every library that holds kernels.
EXPORT int __tvm_ffi_tune_lanes_launch(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  return answer(result, reinterpret_cast<int64_t>(&launch));
}

EXPORT int __tvm_ffi_tune_lanes_barrier(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  return answer(result, reinterpret_cast<int64_t>(&barrier));
}

// (launch, barrier): this library's kernels run their parallel loops there.
EXPORT int __tvm_ffi_tune_lanes_adopt(void*, const TVMFFIAny* args, int32_t, TVMFFIAny*) {
  if (&__TVMBackendParallelLaunch != nullptr) __TVMBackendParallelLaunch = args[0].v_ptr;
  if (&__TVMBackendParallelBarrier != nullptr) __TVMBackendParallelBarrier = args[1].v_ptr;
  return 0;
}

// (address of int64 words) → machine. The words, in this order:
//   threads, then one CPU for each; below 0: wherever the system likes, as a thread that waits for a device
//   groups, then each: first thread, threads, waits and their groups, calls and each:
//     function, arguments, then each: is it an input, address or number of the input, type code, bits, rank, shape
//   for each thread: its groups and their numbers, in order
EXPORT int __tvm_ffi_tune_lanes_new(void*, const TVMFFIAny* args, int32_t, TVMFFIAny* result) {
  const int64_t* at = reinterpret_cast<const int64_t*>(args[0].v_int64);
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, sizeof(Machine)) != 0) abort();
  memset(memory, 0, sizeof(Machine));
  Machine* machine = static_cast<Machine*>(memory);
  machine->threads_count = *at++;
  size_t threads = static_cast<size_t>(machine->threads_count);
  machine->cpus = static_cast<int64_t*>(malloc(threads * sizeof(int64_t)));
  for (size_t i = 0; i < threads; ++i) machine->cpus[i] = *at++;
  machine->groups_count = *at++;
  size_t groups = static_cast<size_t>(machine->groups_count);
  if (posix_memalign(&memory, 64, (groups + 1) * sizeof(Group)) != 0) abort();
  memset(memory, 0, (groups + 1) * sizeof(Group));
  machine->groups = static_cast<Group*>(memory);
  for (size_t i = 0; i < groups; ++i) at = read_group(at, machine, &machine->groups[i]);
  machine->items_count = static_cast<int64_t*>(calloc(threads, sizeof(int64_t)));
  machine->items = static_cast<int64_t**>(calloc(threads, sizeof(int64_t*)));
  for (size_t i = 0; i < threads; ++i) {
    size_t count = static_cast<size_t>(*at++);
    machine->items_count[i] = static_cast<int64_t>(count);
    machine->items[i] = static_cast<int64_t*>(malloc((count + 1) * sizeof(int64_t)));
    for (size_t j = 0; j < count; ++j) machine->items[i][j] = *at++;
  }
  if (posix_memalign(&memory, 64, threads * sizeof(Flag)) != 0) abort();
  memset(memory, 0, threads * sizeof(Flag));
  machine->finished = static_cast<Flag*>(memory);
  pthread_mutex_init(&machine->running, nullptr);
  pthread_mutex_init(&machine->sleeping, nullptr);
  pthread_cond_init(&machine->wake, nullptr);
  machine->threads = static_cast<pthread_t*>(calloc(threads, sizeof(pthread_t)));
  for (size_t i = 1; i < threads; ++i) {
    Start* start = static_cast<Start*>(malloc(sizeof(Start)));
    *start = {machine, static_cast<int64_t>(i)};
    if (pthread_create(&machine->threads[i], nullptr, serve, start) != 0) {
      TVMFFIErrorSetRaisedFromCStr("RuntimeError", "a lane's thread cannot be started");
      return -1;
    }
  }
  return answer(result, reinterpret_cast<int64_t>(machine));
}

// (machine, input, input, …) runs the model once.
EXPORT int __tvm_ffi_tune_lanes_infer(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny*) {
  Machine* machine = machine_of(args);
  for (int64_t i = 0; i < machine->patches_count; ++i) {
    if (machine->patches[i].input + 1 >= count) {
      TVMFFIErrorSetRaisedFromCStr("ValueError", "an input is missing");
      return -1;
    }
  }
  pthread_mutex_lock(&machine->running);
  cpu_set_t before;
  // A caller that is where it belongs stays there: the others' CPUs are busy. Pinning costs microseconds.
  bool known = sched_getcpu() != machine->cpus[0] &&
               pthread_getaffinity_np(pthread_self(), sizeof(before), &before) == 0;
  if (known) pin(machine->cpus[0]);
  for (int64_t i = 0; i < machine->patches_count; ++i) {
    const TVMFFIAny* input = &args[1 + machine->patches[i].input];
    DLTensor* tensor = input->type_index == kTVMFFIDLTensorPtr ? static_cast<DLTensor*>(input->v_ptr)
                                                               : TVMFFITensorGetDLTensorPtr(input->v_obj);
    machine->patches[i].tensor->data = static_cast<char*>(tensor->data) + tensor->byte_offset;
  }
  set(machine->abort, 0);
  set(machine->failed, 0);
  uint64_t epoch = machine->epoch.value.fetch_add(1) + 1;
  if (machine->sleepers.value.load() != 0) wake_all(machine);
  run_items(machine, 0, epoch);
  for (int64_t i = 1; i < machine->threads_count; ++i) {
    int spins = 0;
    while (get(machine->finished[i]) != epoch) relax(&spins);
  }
  if (known) pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
  bool stopped = get(machine->abort) != 0;
  TVMFFIObjectHandle error = machine->error.exchange(nullptr);
  pthread_mutex_unlock(&machine->running);
  if (error != nullptr) {
    TVMFFIErrorSetRaised(error);
    TVMFFIObjectDecRef(error);
  } else if (stopped) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "the run was cancelled");
  }
  return stopped ? -1 : 0;
}

// (machine): the run that is on ends before its next kernel.
EXPORT int __tvm_ffi_tune_lanes_cancel(void*, const TVMFFIAny* args, int32_t, TVMFFIAny*) {
  set(machine_of(args)->abort, 1);
  return 0;
}

// (machine) → number of the group that failed in the last run, plus one; zero if none did.
EXPORT int __tvm_ffi_tune_lanes_failed(void*, const TVMFFIAny* args, int32_t, TVMFFIAny* result) {
  return answer(result, static_cast<int64_t>(get(machine_of(args)->failed)));
}

// (machine, address for two int64 per group): when each began and ended in the last run, nanoseconds.
EXPORT int __tvm_ffi_tune_lanes_times(void*, const TVMFFIAny* args, int32_t, TVMFFIAny*) {
  Machine* machine = machine_of(args);
  int64_t* out = reinterpret_cast<int64_t*>(args[1].v_int64);
  for (int64_t i = 0; i < machine->groups_count; ++i) {
    out[2 * i] = machine->groups[i].began_ns;
    out[2 * i + 1] = machine->groups[i].ended_ns;
  }
  return 0;
}

// (machine): ends its threads and frees it. No run may be on.
EXPORT int __tvm_ffi_tune_lanes_free(void*, const TVMFFIAny* args, int32_t, TVMFFIAny*) {
  Machine* machine = machine_of(args);
  set(machine->stop, 1);
  wake_all(machine);
  for (int64_t i = 1; i < machine->threads_count; ++i) pthread_join(machine->threads[i], nullptr);
  for (int64_t i = 0; i < machine->groups_count; ++i) free_group(&machine->groups[i]);
  for (int64_t i = 0; i < machine->threads_count; ++i) free(machine->items[i]);
  free(machine->items);
  free(machine->items_count);
  free(machine->groups);
  free(machine->patches);
  free(machine->finished);
  free(machine->threads);
  free(machine->cpus);
  free(machine);
  return 0;
}
