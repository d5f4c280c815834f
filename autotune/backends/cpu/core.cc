// Runs a compiled program: kernel calls in a fixed order per thread, with waits where data crosses between threads.
//
// Linked with kernels into every artifact and every exported C library. It needs the C library and threads, nothing of
// TVM's: what compiled kernels ask of TVM's runtime (parallel loops, barriers, workspace, errors) is answered here.
//
//   thread       one core. Thread 0 is the caller; the others belong to the program, are pinned, and spin for IDLE_NS
//                after a run before they sleep. After a fork the child's first run starts them anew.
//   group        a subgraph: calls that run in a row on a team of threads [first, first + size). Its leader is the
//                first thread. The others help: they run their share of every parallel loop that the leader meets. A
//                helper that has not begun its share when the leader has ended its own is late, asleep or off its CPU:
//                the leader runs that share, too. So a run of kernels without parallel loops needs no helper at all.
//   order        every thread meets the groups in their order. A leader waits for the groups that its own group needs,
//                a helper until the leader is done; it may meet runs late, or not at all. After an error or a
//                cancellation the calls that are left are skipped, but every group is still marked as done: nobody
//                waits for ever.
#include "core.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

const int64_t IDLE_NS = 2000000;
const int SPINS = 1000;  // pauses before a waiting thread offers its core to others, some 20 microseconds
// Pauses that a leader waits for its helpers before it looks whether one has not begun: a microsecond or two. Looking
// takes a cache line from the helper, which costs the helper's next loop as much as a miss. After a loop in which one was
// late it looks at once: a recurrent layer has a loop in each of its steps.
const int LATE = 64;
const size_t HUGE_PAGE = 2u << 20;
// Bytes up to which memory is not asked for in huge pages: SqueezeNet's two workspaces of 0.9 MB took 2 MiB each, half of
// what the process needed beside weights and arena: its peak was 20.9 MB, and is 18.3 MB.
const size_t SMALL = 1u << 20;
const size_t ALIGNMENT = 64;    // of the arena and of workspaces: a cache line, so that no vector lies in two
const size_t ASSUMED = 16;      // what kernels assume of every tensor, as allocators give it (passes.py: ALIGNMENT)
// Bytes from which kernels write an output where the caller wants it; a smaller one is copied there from the cache.
// Heuristic, not measured.
const int64_t DIRECT = 16384;
const int WORKSPACES = 16;      // that one thread can hold at a time; kernels of ours hold one or two

// As TVM's (tvm/ffi/c_api.h, dlpack.h, c_backend_api.h; tests/.../test_core.py compares).
struct Any {
  int32_t type_index;
  uint32_t padding;
  void* pointer;
};
const int32_t TENSOR = 7;

struct Tensor {
  void* data;
  int32_t device_type, device_id;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
const int32_t ON_CPU = 1;

const int64_t SLEEPING = -2;  // in place of a CPU: see tune_settings
const int64_t FIRST_SPARE = -3;  // in place of CPU n: FIRST_SPARE - n

struct Env {
  void* sync;
  int32_t num_task;
};

typedef int (*Kernel)(void* self, const Any* args, int32_t count, Any* result);
typedef int (*Lambda)(int task, Env* env, void* data);

enum Place { ARENA = 0, INPUT = 1, WEIGHT = 2 };

struct Region {
  void* base;
  size_t mapped;
  char* start;
  size_t bytes;
};

// A part of the arena that holds nothing while a call runs.
struct Free {
  char* start;
  size_t bytes;
};

// Open sizes along which jobs can be left out in one run.
constexpr int SIZES = 2;

// Steps in which rows of a result follow an open size.
constexpr int STEPS = 2;

// Added to the number of open sizes where more follows than 0.5.0 writes.
constexpr int64_t MORE_WORDS = 4;

// Which jobs of a call's parallel loop make which rows of an open size: job i those of group i / inner % groups. The
// result is `outer` times all rows of that size, of row_bytes each where something reads them.
// The rows of a call's result may follow the open size in other ways than as many: by two steps, each of which multiplies,
// adds and divides. Of several loops that a kernel has, the jobs are those of one; the others run whole.
struct Jobs {
  int64_t count, inner, groups, rows, outer, row_bytes;
  int64_t growth[STEPS][3], loop;
};

struct Call {
  Kernel kernel;
  Any* args;
  int32_t count;
  Free free;
  Jobs jobs[SIZES];  // those of a size lie within a group of the size before it
  const Tensor* condition;  // the call is left out unless this boolean is `when`; null if it is always made
  int64_t place, index;     // of the condition
  bool when;
};

struct Patch {
  Tensor* tensor;
  int64_t input;
  Patch* next;
};

// A tensor inside an output that may be written where the caller wants it.
struct Direct {
  Tensor* tensor;
  int64_t output, offset;
  const Call* writer;  // null for a call that reads it
  Direct* next;
};

struct Output {
  int64_t place, index, bytes;
  bool can_be_direct, is_direct;  // in general, and in this run
};

struct alignas(64) Flag {
  std::atomic<uint64_t> value;
};

struct Group {
  int64_t first, size;
  int64_t waits_count;
  const int64_t* waits;
  int64_t calls_count, first_call;
  Call* calls;
  // The parallel loop that the leader is at.
  Lambda lambda;
  void* data;
  Env env;
  const Jobs* jobs;            // of the loop at hand, by size, where some are left out; else null
  const Jobs* left;            // of the call at hand,
  int64_t left_loop, loop;     // of which loop of it, and the loops that it has begun
  int64_t live_groups[SIZES];  // the first ones of each size, whose jobs run,
  int64_t jobs_count;          // of how many jobs with the others
  Flag done;       // the last run in which the group was done
  Flag launches;   // parallel loops so far
  Flag pending;    // helpers whose share of the loop is not done
  Flag arrived;    // threads at the barrier
  Free free;       // that workspaces of the call at hand come from,
  Flag taken;      // how many bytes of it are taken,
  uint64_t turn;   // and the number of the call
  Flag* claimed;   // the last launch whose share somebody has begun, by member of the team
  bool called;     // whether this run has looked for sleeping helpers
  bool late;       // whether the leader ran a helper's share of the last launch
};

struct Workspace {
  Region region;  // of its own,
  Free lent;      // or from the arena, for one call of a group
  Group* lender;
  uint64_t turn;
  bool used;
};

struct Thread {
  tune_core* core;
  int64_t number;
  int64_t cpu;
  uint64_t epoch;  // the last run that it knows of
  pthread_t id;
  Group* leading;  // the group that it leads, outside of parallel loops: inside one, a loop runs where it is
  Group* team;     // the group that it leads or helps
  Workspace workspaces[WORKSPACES];
};

struct Block {
  Block* next;
};

}  // namespace

struct tune_core {
  Block* blocks;  // everything that was allocated for it
  bool huge_pages;
  Region arena;
  int64_t inputs_count, outputs_count, groups_count, calls_count, threads_count;
  int64_t rows[SIZES], live[SIZES];  // of each open size, and those of them that count in this run; 0: none, all
  const int64_t* input_bytes;
  Region* staged;     // where inputs go that kernels cannot read where they are
  const void** read;  // where kernels read every input of this run
  const void** row_inputs;  // of the run at hand, of several of one call
  void** row_outputs;
  Output* outputs;
  const void* const* weights;
  Patch* patches;
  Direct* directs;
  Group* groups;
  bool others_lead;  // whether a group has another leader than the caller
  Thread* threads;
  int64_t* times;
  // The life of this process in which its threads run; negative while they are being started, 0 if they could not be.
  std::atomic<int64_t> life;
  pthread_mutex_t running, sleeping;
  pthread_cond_t wake;
  Flag epoch, sleepers, stop, abort, failed;  // failed: number of the group, plus one
  bool has_devices;              // whether threads wait for some, and sleep meanwhile
  std::atomic<int32_t> changes;  // of what they wait for; they sleep on it
  std::atomic<int32_t> dozing;   // that do so
  char error[sizeof(tune_report::text)];
};

struct tune_streams {
  pthread_mutex_t lock;
  int64_t count, idle_count;
  tune_stream* streams;
  int64_t* idle;        // numbers of the streams that are free, the one that was left last at the end
  tune_request** running;  // what runs on each stream, or null
  tune_request* first;  // those that wait
  tune_request** last;
  std::atomic<int64_t> run_ns;  // what the last run took, on any stream
};

namespace {

thread_local Thread* here = nullptr;
thread_local char raised[sizeof(tune_report::text)];

// Counts the forks that led to this process, from 1. A process's number does not tell a child from its parent where the
// child is the first of a new namespace.
std::atomic<int64_t> lives{1};

void begin_life() { lives.fetch_add(1, std::memory_order_relaxed); }

__attribute__((constructor)) void notice_forks() { pthread_atfork(nullptr, nullptr, &begin_life); }

inline void relax(int* spins) {
  if (here != nullptr && here->cpu <= FIRST_SPARE) {
    sched_yield();  // at once: the CPU is that of the others who wait for devices too, and one of them may have work
  } else if (*spins < SPINS) {
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

long futex(void* word, int operation, int32_t value, const struct timespec* time) {
  return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, time, nullptr, FUTEX_BITSET_MATCH_ANY);
}

inline uint64_t get(const Flag& flag) { return flag.value.load(std::memory_order_acquire); }
inline void set(Flag& flag, uint64_t value) { flag.value.store(value, std::memory_order_release); }

// Returns when `is_so`. A thread of a device sleeps until then, for naps would take the cores from those that compute: on
// a virtual machine one that naps for 10 microseconds again and again takes 60 % of a CPU.
template <typename Condition>
void await(tune_core* core, Condition is_so) {
  int spins = 0;
  for (;;) {
    const int32_t changes = core->changes.load();
    if (is_so()) return;
    if (here == nullptr || here->cpu != SLEEPING) {
      relax(&spins);
      continue;
    }
    core->dozing.fetch_add(1);
    futex(&core->changes, FUTEX_WAIT_BITSET, changes, nullptr);
    core->dozing.fetch_sub(1);
  }
}

// Wakes the threads that sleep, of which one may wait for what has just come about.
void tell(tune_core* core) {
  if (!core->has_devices) return;
  core->changes.fetch_add(1);
  if (core->dozing.load() != 0) futex(&core->changes, FUTEX_WAKE, INT_MAX, nullptr);
}

int say(tune_report* report, int status, const char* text) {
  if (report != nullptr) {
    report->group = -1;
    snprintf(report->text, sizeof(report->text), "%s", text);
  }
  return status;
}

// Memory.

bool map_region(size_t bytes, bool huge, Region* region) {
  huge = huge && bytes > SMALL;
  size_t mapped = huge ? (bytes + 2 * HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : bytes + ALIGNMENT;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return false;
  char* start = static_cast<char*>(base);
  if (huge) {
    start += (HUGE_PAGE - reinterpret_cast<uintptr_t>(base) % HUGE_PAGE) % HUGE_PAGE;
    // A last page that would be empty by half or more is left to small ones.
    madvise(start, (bytes + HUGE_PAGE / 2 - 1) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
  }
  *region = {base, mapped, start, bytes};
  return true;
}

void unmap(Region* region) {
  if (region->base != nullptr) munmap(region->base, region->mapped);
  *region = {nullptr, 0, nullptr, 0};
}

// Zeros that live as long as the core, aligned to a cache line; null if there is no memory.
void* keep(tune_core* core, size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, 64 + bytes) != 0) return nullptr;
  memset(memory, 0, 64 + bytes);
  Block* block = static_cast<Block*>(memory);
  block->next = core->blocks;
  core->blocks = block;
  return static_cast<char*>(memory) + 64;
}

template <typename T>
bool keep(tune_core* core, int64_t count, T** made) {
  *made = static_cast<T*>(keep(core, static_cast<size_t>(count) * sizeof(T)));
  return *made != nullptr;
}

// From what the arena has free while this call runs; false if that does not suffice.
bool borrow(Group* team, size_t bytes, Workspace* space) {
  if (team->free.bytes == 0) return false;
  uint64_t at = get(team->taken);
  while (at + bytes <= team->free.bytes) {
    if (!team->taken.value.compare_exchange_weak(at, at + bytes)) continue;
    space->lent = {team->free.start + at, bytes};
    space->lender = team;
    space->turn = team->turn;
    return true;
  }
  return false;
}

void* no_workspace(const char* why) {
  snprintf(raised, sizeof(raised), "%s", why);
  return nullptr;
}

void* allocate(int, int, uint64_t wanted, int, int) {
  if (here == nullptr) return no_workspace("a workspace is asked for outside of a run");
  const size_t bytes = (static_cast<size_t>(wanted) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  Group* team = here->team;
  Workspace* empty = nullptr;  // holds nothing of this call's,
  Workspace* other = nullptr;  // or memory of another size
  Workspace* own = nullptr;    // has memory of its own, the least that suffices or the most that there is
  for (Workspace& space : here->workspaces) {
    if (space.used) continue;
    if (team == nullptr || space.lender != team || space.turn != team->turn) {
      empty = &space;
    } else if (space.lent.bytes == bytes) {  // a larger one would be missing where the call asks for that size again
      space.used = true;
      return space.lent.start;
    } else {
      other = &space;
      continue;
    }
    const size_t has = space.region.bytes;
    if (own == nullptr || (own->region.bytes < bytes ? has > own->region.bytes : has >= bytes && has < own->region.bytes)) {
      own = &space;
    }
  }
  if (empty == nullptr) empty = own = other;
  if (empty == nullptr) return no_workspace("a kernel holds too many workspaces at a time");
  if (team != nullptr && borrow(team, bytes, empty)) {
    empty->used = true;
    return empty->lent.start;
  }
  if (own->region.bytes < bytes) {
    unmap(&own->region);
    if (!map_region(bytes, here->core->huge_pages, &own->region)) return no_workspace("no memory for a workspace");
  }
  own->lender = nullptr;
  own->used = true;
  return own->region.start;
}

int release(int, int, void* memory) {
  if (here == nullptr) return -1;
  for (Workspace& space : here->workspaces) {
    if (space.used && (space.lender != nullptr ? space.lent.start : space.region.start) == memory) {
      space.used = false;
      return 0;
    }
  }
  return -1;
}

// Takes back the workspaces that kernels which failed have kept. No kernel may run.
void take_workspaces(tune_core* core) {
  for (int64_t i = 0; i < core->threads_count; ++i) {
    for (Workspace& space : core->threads[i].workspaces) space.used = false;
  }
}

// Running.

// The first error of a run is kept; later ones follow from it or do not matter beside it.
void keep_error(tune_core* core, int64_t group) {
  uint64_t none = 0;
  if (core->failed.value.compare_exchange_strong(none, static_cast<uint64_t>(group + 1))) {
    snprintf(core->error, sizeof(core->error), "%s", raised[0] ? raised : "a kernel failed without saying why");
  }
  raised[0] = 0;
  set(core->abort, 1);
}

// Rows of a call's result at `size` of an open size.
int64_t grown(const Jobs& jobs, int64_t size) {
  for (const auto& step : jobs.growth) size = (step[0] * size + step[1]) / step[2];
  return size < 0 ? 0 : size;
}

// The k-th job of those whose rows count.
int64_t live_job(const Group* group, int64_t k) {
  int64_t job = 0, span = 1;  // jobs of all groups of the sizes so far
  for (int size = SIZES - 1; size >= 0; --size) {
    const Jobs& jobs = group->jobs[size];
    if (jobs.groups == 0) continue;
    const int64_t apart = jobs.inner / span, live = group->live_groups[size];
    job += k % apart * span + k / apart % live * jobs.inner;
    k /= apart * live;
    span = jobs.inner * jobs.groups;
  }
  return job + k * span;
}

// A member's share of the jobs whose rows count.
int run_live_share(Group* group, int64_t member) {
  int64_t total = group->jobs_count;
  for (int size = 0; size < SIZES; ++size) {
    if (group->jobs[size].groups != 0) total = total / group->jobs[size].groups * group->live_groups[size];
  }
  const int64_t share = (total + group->size - 1) / group->size;
  const int64_t first = member * share, end = first + share < total ? first + share : total;
  int failed = 0;
  for (int64_t k = first; k < end; ++k) {
    failed |= group->lambda(static_cast<int>(live_job(group, k)), &group->env, group->data);
  }
  return failed;
}

int run_share(Group* group, int64_t member) {
  if (group->jobs != nullptr) return run_live_share(group, member);
  int failed = 0;
  for (int64_t task = member; task < group->env.num_task; task += group->size) {
    failed |= group->lambda(static_cast<int>(task), &group->env, group->data);
  }
  return failed;
}

// Runs a member's share of a launch unless somebody has begun it: who advances `claimed` from the launch before to this
// one runs it. Then the leader has not left this launch, since it waits until nothing is pending: lambda, data and env
// are still those of the launch.
bool claim_share(tune_core* core, Group* group, int64_t member, uint64_t launch) {
  uint64_t before = launch - 1;
  if (!group->claimed[member].value.compare_exchange_strong(before, launch)) return false;
  if (run_share(group, member) != 0) keep_error(core, group - core->groups);
  group->pending.value.fetch_sub(1, std::memory_order_acq_rel);
  return true;
}

void help(tune_core* core, Group* group, int64_t thread, uint64_t epoch) {
  int64_t member = thread - group->first;
  int spins = 0;
  here->team = group;
  for (;;) {
    const uint64_t launch = get(group->launches);
    if (launch != get(group->claimed[member])) {
      claim_share(core, group, member, launch);
      spins = 0;
    } else if (get(group->done) >= epoch) {
      return;
    } else {
      relax(&spins);
    }
  }
}

// What left out jobs would have made, where something reads it: what an earlier run or another tensor has left there may
// be no number.
void clear_dead_rows(tune_core* core, const Call* call) {
  for (int size = 0; size < SIZES; ++size) {
    const Jobs& jobs = call->jobs[size];
    if (jobs.row_bytes == 0 || core->live[size] == 0) continue;
    const int64_t rows = grown(jobs, core->rows[size]), live = grown(jobs, core->live[size]);
    char* made = static_cast<char*>(static_cast<const Tensor*>(call->args[call->count - 1].pointer)->data);
    // Rows of the size before, if they are the outermost axis, are cleared above where they must be: only live ones here.
    const Jobs& before = call->jobs[0];
    const bool within = size != 0 && before.groups != 0 && before.outer == 1 && core->live[0] != 0;
    const int64_t times =
        within ? jobs.outer / grown(before, core->rows[0]) * grown(before, core->live[0]) : jobs.outer;
    for (int64_t i = 0; i < times; ++i) {
      memset(made + (i * rows + live) * jobs.row_bytes, 0, static_cast<size_t>((rows - live) * jobs.row_bytes));
    }
  }
}

// Notes which jobs of a call are left out in this run.
void leave_out(const tune_core* core, const Call* call, Group* group) {
  group->jobs = group->left = nullptr;
  group->loop = 0;
  for (int size = 0; size < SIZES; ++size) {
    const Jobs& jobs = call->jobs[size];
    if (jobs.groups == 0) continue;
    const bool all = core->live[size] == 0;
    group->live_groups[size] = all ? jobs.groups : (grown(jobs, core->live[size]) + jobs.rows - 1) / jobs.rows;
    group->jobs_count = jobs.count;
    group->left_loop = jobs.loop;
    if (!all) group->left = call->jobs;
  }
}

// Whether the side of a choice that needs a call is the chosen one.
bool is_chosen(const Call* call) {
  return call->condition == nullptr || (*static_cast<const uint8_t*>(call->condition->data) != 0) == call->when;
}

void lead(tune_core* core, Group* group, uint64_t epoch) {
  for (int64_t i = 0; i < group->waits_count; ++i) {
    const Flag& done = core->groups[group->waits[i]].done;
    await(core, [&] { return get(done) == epoch; });
  }
  here->leading = here->team = group;
  group->called = false;
  const bool timed = core->times != nullptr;
  int64_t* times = timed ? core->times + 2 * (group - core->groups) : nullptr;
  int64_t* call_times = timed ? core->times + 2 * (core->groups_count + group->first_call) : nullptr;
  if (timed) times[0] = now_ns();
  for (int64_t i = 0; i < group->calls_count && !get(core->abort); ++i) {
    Call* call = &group->calls[i];
    group->free = call->free;
    set(group->taken, 0);
    ++group->turn;
    if (timed) call_times[2 * i] = now_ns();
    if (is_chosen(call)) {
      leave_out(core, call, group);
      Any result = {0, 0, nullptr};
      if (call->kernel(nullptr, call->args, call->count, &result) != 0) keep_error(core, group - core->groups);
      clear_dead_rows(core, call);
    }
    if (timed) call_times[2 * i + 1] = now_ns();
  }
  if (timed) times[1] = now_ns();
  here->leading = nullptr;
  set(group->done, epoch);
  tell(core);
}

void run_groups(Thread* thread, uint64_t epoch) {
  tune_core* core = thread->core;
  for (int64_t i = 0; i < core->groups_count; ++i) {
    Group* group = &core->groups[i];
    if (group->first == thread->number) {
      lead(core, group, epoch);
    } else if (group->first < thread->number && thread->number < group->first + group->size) {
      help(core, group, thread->number, epoch);
    }
  }
}

// Returns when there is a new run, or the threads are to end.
void await_run(tune_core* core, uint64_t seen) {
  if (here->cpu == SLEEPING) return await(core, [&] { return get(core->epoch) != seen || get(core->stop) != 0; });
  int64_t since = now_ns();
  int spins = 0;
  for (uint64_t turn = 1; get(core->epoch) == seen && !get(core->stop); ++turn) {
    relax(&spins);
    if (turn % 64 != 0 || now_ns() - since < IDLE_NS) continue;
    pthread_mutex_lock(&core->sleeping);
    core->sleepers.value.fetch_add(1);
    while (core->epoch.value.load() == seen && !get(core->stop)) pthread_cond_wait(&core->wake, &core->sleeping);
    core->sleepers.value.fetch_sub(1);
    pthread_mutex_unlock(&core->sleeping);
  }
}

void wake_all(tune_core* core) {
  tell(core);
  pthread_mutex_lock(&core->sleeping);
  pthread_cond_broadcast(&core->wake);
  pthread_mutex_unlock(&core->sleeping);
}

void pin(int64_t cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<int>(cpu), &one);
  pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

void* serve(void* argument) {
  Thread* thread = static_cast<Thread*>(argument);
  here = thread;
  if (thread->cpu >= 0) pin(thread->cpu);
  if (thread->cpu <= FIRST_SPARE) pin(FIRST_SPARE - thread->cpu);
  for (;;) {
    await_run(thread->core, thread->epoch);
    if (get(thread->core->stop)) return nullptr;
    thread->epoch = get(thread->core->epoch);
    run_groups(thread, thread->epoch);
  }
}

void join_threads(tune_core* core, int64_t count) {
  set(core->stop, 1);
  wake_all(core);
  for (int64_t i = 1; i < count; ++i) pthread_join(core->threads[i].id, nullptr);
  set(core->stop, 0);
}

// After a fork: what another thread of the parent may have been writing when it was copied. It stays mapped.
void forget_memory(tune_core* core) {
  for (int64_t i = 0; i < core->inputs_count; ++i) core->staged[i] = {nullptr, 0, nullptr, 0};
  for (int64_t i = 0; i < core->threads_count; ++i) {
    for (Workspace& space : core->threads[i].workspaces) space = Workspace();
  }
}

bool start_threads(tune_core* core) {
  pthread_mutex_init(&core->running, nullptr);
  pthread_mutex_init(&core->sleeping, nullptr);
  pthread_cond_init(&core->wake, nullptr);
  set(core->sleepers, 0);
  uint64_t epoch = get(core->epoch);
  for (int64_t i = 0; i < core->groups_count; ++i) {
    Group* group = &core->groups[i];
    for (int64_t j = 0; j < group->size; ++j) set(group->claimed[j], get(group->launches));
  }
  for (int64_t i = 0; i < core->threads_count; ++i) {
    Thread* thread = &core->threads[i];
    thread->epoch = epoch;
    thread->leading = thread->team = nullptr;
  }
  take_workspaces(core);
  for (int64_t i = 1; i < core->threads_count; ++i) {
    if (pthread_create(&core->threads[i].id, nullptr, serve, &core->threads[i]) != 0) {
      join_threads(core, i);
      return false;
    }
  }
  return true;
}

// Threads do not survive a fork: the child's first run starts its own. The parent may have been anywhere in a run.
bool threads_are_here(tune_core* core) {
  const int64_t own = lives.load(std::memory_order_relaxed);
  int64_t found;
  int spins = 0;
  while ((found = core->life.load(std::memory_order_acquire)) != own) {
    if (found == -own) {
      relax(&spins);
    } else if (core->life.compare_exchange_strong(found, -own)) {
      if (found != 0) forget_memory(core);
      const bool started = start_threads(core);
      core->life.store(started ? own : 0, std::memory_order_release);
      if (!started) return false;
    }
  }
  return true;
}

int launch(Lambda lambda, void* data, int num_task) {
  Group* group = here == nullptr ? nullptr : here->leading;
  if (group != nullptr) group->jobs = group->loop++ == group->left_loop ? group->left : nullptr;
  const bool alone = group == nullptr || group->size == 1 || num_task == 1;
  if (alone && (group == nullptr || group->jobs == nullptr)) {
    Env env = {nullptr, 1};
    return lambda(0, &env, data);
  }
  group->lambda = lambda;
  group->data = data;
  group->env.sync = group;
  group->env.num_task = group->jobs != nullptr ? static_cast<int32_t>(group->jobs_count)
                        : num_task == 0       ? static_cast<int32_t>(group->size)
                                              : num_task;
  if (group->size == 1) {
    here->leading = nullptr;
    const int failed = run_share(group, 0);
    here->leading = group;
    return failed;
  }
  set(group->arrived, 0);
  set(group->pending, static_cast<uint64_t>(group->size - 1));
  const uint64_t launch = group->launches.value.fetch_add(1) + 1;
  if (!group->called) {
    group->called = true;
    if (here->core->sleepers.value.load() != 0) wake_all(here->core);
  }
  here->leading = nullptr;
  const int failed = run_share(group, 0);
  if (failed != 0) keep_error(here->core, group - here->core->groups);  // now: others may be at a barrier
  const int patience = group->late ? 0 : LATE;
  group->late = false;
  for (int spins = 0; get(group->pending) != 0; relax(&spins)) {
    if (spins != patience) continue;
    for (int64_t member = 1; member < group->size; ++member) {
      if (claim_share(here->core, group, member, launch)) group->late = true;
    }
  }
  here->leading = group;
  return failed;
}

// Waits for every task of the loop; not 0 if one failed, which will never come.
int barrier(int, Env* env) {
  if (env->num_task == 1) return 0;
  Group* group = static_cast<Group*>(env->sync);
  uint64_t size = static_cast<uint64_t>(env->num_task);
  uint64_t target = (group->arrived.value.fetch_add(1, std::memory_order_acq_rel) / size + 1) * size;
  int spins = 0;
  while (get(group->arrived) < target) {
    if (here != nullptr && get(here->core->failed) != 0) return -1;
    relax(&spins);
  }
  return 0;
}

// Reading the program.

bool read_operand(tune_core* core, const int64_t** words, Any* arg) {
  const int64_t* at = *words;
  int64_t place = *at++, index = *at++;
  Tensor* tensor;
  if (!keep(core, 1, &tensor)) return false;
  tensor->device_type = ON_CPU;
  tensor->code = static_cast<uint8_t>(*at++);
  tensor->bits = static_cast<uint8_t>(*at++);
  tensor->lanes = 1;
  tensor->rank = static_cast<int32_t>(*at++);
  if (!keep(core, 2 * tensor->rank + 1, &tensor->shape)) return false;
  tensor->strides = tensor->shape + tensor->rank;
  int64_t stride = 1;
  for (int32_t d = tensor->rank - 1; d >= 0; --d) {
    tensor->shape[d] = at[d];
    tensor->strides[d] = stride;
    stride *= at[d];
  }
  *words = at + tensor->rank;
  if (place == INPUT) {
    Patch* patch;
    if (!keep(core, 1, &patch)) return false;
    *patch = {tensor, index, core->patches};
    core->patches = patch;
  } else {
    tensor->data = place == ARENA ? core->arena.start + index : const_cast<void*>(core->weights[index]);
  }
  *arg = {TENSOR, 0, tensor};
  return true;
}

bool read_group(tune_core* core, const int64_t** words, void* const* kernels, Group* group) {
  const int64_t* at = *words;
  group->first = *at++;
  core->others_lead = core->others_lead || group->first != 0;
  group->size = *at++;
  if (group->size == 0) group->size = core->threads_count;
  group->waits_count = *at++;
  group->waits = at;
  at += group->waits_count;
  group->calls_count = *at++;
  group->first_call = core->calls_count;
  core->calls_count += group->calls_count;
  if (!keep(core, group->size, &group->claimed) || !keep(core, group->calls_count, &group->calls)) return false;
  for (int64_t i = 0; i < group->calls_count; ++i) {
    Call* call = &group->calls[i];
    call->kernel = reinterpret_cast<Kernel>(kernels[*at++]);
    call->count = static_cast<int32_t>(*at++);
    if (!keep(core, call->count, &call->args)) return false;
    for (int32_t j = 0; j < call->count; ++j) {
      if (!read_operand(core, &at, &call->args[j])) return false;
    }
  }
  *words = at;
  return true;
}

// The call of this number in the order of the program.
Call* call_of(const tune_core* core, int64_t number) {
  Group* group = core->groups;
  while (number >= group->first_call + group->calls_count) ++group;
  return &group->calls[number - group->first_call];
}

// Where the workspaces of every call lie, which of its jobs make which rows, and the calls that a boolean leaves out.
bool read_calls_again(tune_core* core, const int64_t* at) {
  for (int64_t i = 0; i < core->groups_count; ++i) {
    for (int64_t j = 0; j < core->groups[i].calls_count; ++j, at += 2) {
      core->groups[i].calls[j].free = {core->arena.start + at[0], static_cast<size_t>(at[1])};
    }
  }
  const bool has_more = (*at & MORE_WORDS) != 0;
  const int64_t sizes = *at++ & ~MORE_WORDS;
  for (int64_t size = 0; size < sizes; ++size) {
    core->rows[size] = *at++;
    for (int64_t i = 0; i < core->groups_count; ++i) {
      for (int64_t j = 0; j < core->groups[i].calls_count; ++j, at += 6) {
        core->groups[i].calls[j].jobs[size] = {at[0], at[1], at[2], at[3], at[4], at[5], {{1, 0, 1}, {1, 0, 1}}, 0};
      }
    }
  }
  if (!has_more) return true;
  const int64_t guarded = *at++;
  for (int64_t i = 0; i < guarded; ++i) {
    Call* call = call_of(core, *at++);
    const int64_t when = *at++;
    call->place = at[0];
    call->index = at[1];
    Any condition;
    if (!read_operand(core, &at, &condition)) return false;
    call->condition = static_cast<const Tensor*>(condition.pointer);
    call->when = when != 0;
  }
  const int64_t others = *at++;
  for (int64_t i = 0; i < others; ++i, at += 3 * STEPS) {
    Jobs* jobs = call_of(core, *at++)->jobs;
    jobs += *at++;
    jobs->loop = *at++;
    memcpy(jobs->growth, at, sizeof(jobs->growth));
  }
  return true;
}

int64_t bytes_of(const Tensor& tensor) {
  int64_t elements = 1;
  for (int32_t d = 0; d < tensor.rank; ++d) elements *= tensor.shape[d];
  return elements * tensor.bits / 8;
}

// Where a tensor of the arena begins and ends in it; (-1, -1) for another tensor.
void range_in_arena(const tune_core* core, const Tensor& tensor, int64_t* low, int64_t* high) {
  const char* data = static_cast<const char*>(tensor.data);
  const bool inside = data != nullptr && data >= core->arena.start && data < core->arena.start + core->arena.bytes;
  *low = inside ? data - core->arena.start : -1;
  *high = inside ? *low + bytes_of(tensor) : -1;
}

bool have_one_condition(const Call& one, const Call& other) {
  return one.condition != nullptr && other.condition != nullptr && one.place == other.place && one.index == other.index;
}

// Finds the tensors that lie in an output, from the last call back to the one that begins to write it; to the earlier of
// two if a condition chooses who writes. Before that call the memory belongs to others. Returns whether all of them lie in
// it entirely, so that they can lie elsewhere instead.
bool find_directs(tune_core* core, int64_t number) {
  const Output& output = core->outputs[number];
  const Group& group = core->groups[0];
  int64_t missing[2] = {output.bytes, output.bytes};  // for both values of the condition
  const Call* chosen = nullptr;
  for (int64_t i = group.calls_count - 1; i >= 0 && (missing[0] > 0 || missing[1] > 0); --i) {
    const Call& call = group.calls[i];
    for (int32_t j = 0; j < call.count; ++j) {
      Tensor* tensor = static_cast<Tensor*>(call.args[j].pointer);
      int64_t low, high;
      range_in_arena(core, *tensor, &low, &high);
      if (high <= output.index || low >= output.index + output.bytes) continue;
      if (low < output.index || high > output.index + output.bytes) return false;
      const bool is_written = j == call.count - 1;
      if (is_written && call.condition != nullptr) {
        if (chosen != nullptr && !have_one_condition(*chosen, call)) return false;
        chosen = &call;
      }
      for (const Direct* other = core->directs; is_written && other != nullptr; other = other->next) {
        const int64_t begin = core->outputs[other->output].index + other->offset;
        if (other->writer == nullptr || low >= begin + bytes_of(*other->tensor) || begin >= high) continue;
        if (!have_one_condition(*other->writer, call) || other->writer->when == call.when) return false;
      }
      Direct* direct;
      if (!keep(core, 1, &direct)) return false;
      *direct = {tensor, number, low - output.index, is_written ? &call : nullptr, core->directs};
      core->directs = direct;
      for (int when = 0; is_written && when < 2; ++when) {
        if (call.condition == nullptr || call.when == (when != 0)) missing[when] -= high - low;
      }
    }
  }
  return missing[0] == 0 && missing[1] == 0;
}

// Which outputs kernels may write where the caller wants them: large ones of programs whose calls run in one order.
void find_direct_outputs(tune_core* core) {
  if (core->groups_count != 1 || core->has_devices) return;
  for (int64_t i = 0; i < core->outputs_count; ++i) {
    Output* output = &core->outputs[i];
    bool alone = output->place == ARENA && output->bytes >= DIRECT;
    for (int64_t j = 0; alone && j < core->outputs_count; ++j) {
      const Output& other = core->outputs[j];
      const bool apart = other.index + other.bytes <= output->index || output->index + output->bytes <= other.index;
      alone = j == i || other.place != ARENA || apart;
    }
    Direct* before = core->directs;
    output->can_be_direct = alone && find_directs(core, i);
    if (!output->can_be_direct) core->directs = before;
  }
}

bool read_program(tune_core* core, const tune_program* program) {
  const int64_t* at = program->words;
  core->weights = program->weights;
  if (!map_region(static_cast<size_t>(*at++), core->huge_pages, &core->arena)) return false;
  core->inputs_count = *at++;
  if (!keep(core, core->inputs_count, &core->staged) || !keep(core, core->inputs_count, &core->read) ||
      !keep(core, core->inputs_count, &core->row_inputs)) {
    return false;
  }
  core->input_bytes = at;
  at += core->inputs_count;
  core->outputs_count = *at++;
  if (!keep(core, core->outputs_count, &core->outputs) || !keep(core, core->outputs_count, &core->row_outputs)) return false;
  for (int64_t i = 0; i < core->outputs_count; ++i, at += 3) core->outputs[i] = {at[0], at[1], at[2], false, false};
  core->groups_count = *at++;
  if (!keep(core, core->groups_count, &core->groups)) return false;
  for (int64_t i = 0; i < core->groups_count; ++i) {
    if (!read_group(core, &at, program->kernels, &core->groups[i])) return false;
  }
  return read_calls_again(core, at);
}

bool is_aligned(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % ASSUMED == 0; }

// Where kernels read input `number` of a run: the caller's memory if that is aligned, else a copy; null without memory.
const void* readable(tune_core* core, int64_t number, const void* given) {
  if (is_aligned(given)) return given;
  size_t bytes = static_cast<size_t>(core->input_bytes[number]);
  Region* staged = &core->staged[number];
  if (staged->base == nullptr && !map_region(bytes, core->huge_pages, staged)) return nullptr;
  memcpy(staged->start, given, bytes);
  return staged->start;
}

bool patch_inputs(tune_core* core, const void* const* inputs) {
  for (int64_t i = 0; i < core->inputs_count; ++i) {
    core->read[i] = readable(core, i, inputs[i]);
    if (core->read[i] == nullptr) return false;
  }
  for (Patch* patch = core->patches; patch != nullptr; patch = patch->next) {
    patch->tensor->data = const_cast<void*>(core->read[patch->input]);
  }
  return true;
}

// Whether rows of an open size do not count in this run.
bool leaves_rows(const tune_core* core) {
  for (int size = 0; size < SIZES; ++size) {
    if (core->live[size] != 0) return true;
  }
  return false;
}

// Whether output `number` shares memory with an input: that is to be read as it is until the last kernel has run.
bool is_read_too(const tune_core* core, int64_t number, const void* const* inputs, const void* wanted) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(wanted), bytes = core->outputs[number].bytes;
  for (int64_t i = 0; i < core->inputs_count; ++i) {
    const uintptr_t input = reinterpret_cast<uintptr_t>(inputs[i]);
    if (input < begin + bytes && begin < input + core->input_bytes[i]) return true;
  }
  return false;
}

// Where kernels write the outputs of this run. Rows that do not count are not written: such a run's outputs are copied.
void patch_outputs(tune_core* core, const void* const* inputs, void* const* outputs) {
  if (core->directs == nullptr) return;
  for (int64_t i = 0; i < core->outputs_count; ++i) {
    Output* output = &core->outputs[i];
    output->is_direct = output->can_be_direct && !leaves_rows(core) && is_aligned(outputs[i]) &&
                        !is_read_too(core, i, inputs, outputs[i]);
  }
  for (Direct* direct = core->directs; direct != nullptr; direct = direct->next) {
    const Output& output = core->outputs[direct->output];
    char* begin = output.is_direct ? static_cast<char*>(outputs[direct->output]) : core->arena.start + output.index;
    direct->tensor->data = begin + direct->offset;
  }
}

void copy_outputs(tune_core* core, const void* const* inputs, void* const* outputs) {
  for (int64_t i = 0; i < core->outputs_count; ++i) {
    const Output& output = core->outputs[i];
    if (output.is_direct) continue;
    const void* made = output.place == ARENA   ? core->arena.start + output.index
                       : output.place == INPUT ? inputs[output.index]
                                               : core->weights[output.index];
    memcpy(outputs[i], made, static_cast<size_t>(output.bytes));
  }
}

bool is_cancelled(const tune_request* request) { return __atomic_load_n(&request->cancelled, __ATOMIC_SEQ_CST) != 0; }

// Before the runs of a call: a mark that `tune_core_cancel` sets from now on ends the run at hand and those behind it.
// Returns whether the caller was sent to its core's CPU, from `before`.
bool begin_call(tune_core* core, const tune_request* request, cpu_set_t* before) {
  const int64_t cpu = core->threads[0].cpu;
  // A caller that is where it belongs stays there: the others' CPUs are busy. Pinning costs microseconds.
  // Where threads of devices wake up on it, it would be moved.
  const bool moved = cpu >= 0 && (core->has_devices || sched_getcpu() != cpu) &&
                     pthread_getaffinity_np(pthread_self(), sizeof(*before), before) == 0;
  if (moved) pin(cpu);
  core->abort.value.store(0);
  set(core->failed, 0);
  // Who cancels a request marks it before the run: if that was before the lines above, the mark is seen here.
  if (request != nullptr && is_cancelled(request)) set(core->abort, 1);
  return moved;
}

void end_call(bool moved, const cpu_set_t* before) {
  if (moved) pthread_setaffinity_np(pthread_self(), sizeof(*before), before);
}

int run_once(tune_core* core, const void* const* inputs, void* const* outputs, tune_report* report) {
  if (!patch_inputs(core, inputs)) return say(report, TUNE_NO_MEMORY, "no memory for a copy of an input");
  patch_outputs(core, inputs, outputs);
  Thread* first = &core->threads[0];
  Thread* outside = here;
  here = first;
  uint64_t epoch = core->epoch.value.fetch_add(1) + 1;
  tell(core);
  if (core->others_lead && core->sleepers.value.load() != 0) wake_all(core);
  run_groups(first, epoch);
  for (int64_t i = 0; core->others_lead && i < core->groups_count; ++i) {
    const Flag& done = core->groups[i].done;
    await(core, [&] { return get(done) == epoch; });
  }
  here = outside;
  uint64_t failed = get(core->failed);
  if (failed != 0) {
    take_workspaces(core);
    say(report, TUNE_FAILED, core->error);
    if (report != nullptr) report->group = static_cast<int64_t>(failed) - 1;
    return TUNE_FAILED;
  }
  if (get(core->abort)) return say(report, TUNE_CANCELLED, "the run was cancelled");
  copy_outputs(core, inputs, outputs);
  return say(report, TUNE_OK, "");
}

// Streams.

enum { NEW = 0, WAITING = 1, RUNNING = 2, ENDED = 3 };  // a request's state, which is also what its thread sleeps on

void set_state(tune_request* request, int32_t state) { __atomic_store_n(&request->state, state, __ATOMIC_RELEASE); }

void leave_queue(tune_streams* streams, tune_request* request) {
  tune_request** at = &streams->first;
  while (*at != request) at = &(*at)->next;
  *at = request->next;
  if (*at == nullptr) streams->last = at;
}

// The idle stream of the CPU that the caller is on, whose caches have what it has just written, else the one that was
// left last.
int64_t pop_idle(tune_streams* streams) {
  const int cpu = sched_getcpu();
  int64_t* last = &streams->idle[--streams->idle_count];
  for (int64_t* each = streams->idle; each < last; ++each) {
    if (streams->streams[*each].cpu != cpu) continue;
    const int64_t found = *each;
    *each = *last;
    return found;
  }
  return *last;
}

// A thread's share of its CPU as the kernel's sched_attr has it, which C libraries do not declare.
struct Share {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
  uint32_t least, most;
};

// While a thread runs on a stream it asks for the longest slice of its CPU, so that whoever wakes up with a shorter one
// (a thread that takes or answers a request) goes first (Linux 6.12, EEVDF). Its share of the CPU stays as it is. Evenly
// sent requests of SqueezeNet at 70 % of the most, two cores of a Zen 4: 300 of 1,650 were sent late by more than 1 ms
// without, 50 with it, and p90 was 10.3 ms without, 6.7 with it.
constexpr uint64_t LONG_SLICE_NS = 100000000;

bool set_slice(const Share& own, uint64_t slice_ns) {
  Share share = own;
  share.runtime = slice_ns;
  return syscall(SYS_sched_setattr, 0, &share, 0) == 0;
}

// Whether `own`, the caller's share until now, is to be put back by `set_slice`. Threads that the user has given a
// real-time policy keep it, and kernels without slices say 0.
bool take_long_slice(Share* own) {
  return syscall(SYS_sched_getattr, 0, own, sizeof(*own), 0) == 0 && own->policy == SCHED_OTHER && own->runtime != 0 &&
         own->runtime < LONG_SLICE_NS && set_slice(*own, LONG_SLICE_NS);
}

// After a run that took less than this, a stream's thread is neither kept on its CPU nor asks for a slice: that and
// undoing both takes six system calls, 2 to 3 microseconds, a hundredth of this. A thread on another CPU than its core's
// is still sent there by run_once.
constexpr int64_t SHORT_NS = 250000;

// Sleeps until the request is no longer waiting, or `timeout_ns` have passed; for ever if that is negative or centuries.
void await_stream(tune_request* request, int64_t timeout_ns) {
  const int64_t now = now_ns();
  if (timeout_ns > INT64_MAX - now) timeout_ns = -1;
  const int64_t end = now + timeout_ns;
  const struct timespec until = {static_cast<time_t>(end / 1000000000LL), static_cast<long>(end % 1000000000LL)};
  while (__atomic_load_n(&request->state, __ATOMIC_ACQUIRE) == WAITING) {
    // The bitset's form takes the moment of the end, not the time that is left.
    if (futex(&request->state, FUTEX_WAIT_BITSET, WAITING, timeout_ns < 0 ? nullptr : &until) != 0 &&
        errno == ETIMEDOUT) {
      return;
    }
  }
}

void begin(tune_streams* streams, tune_request* request, int64_t stream) {
  request->stream = static_cast<int32_t>(stream);
  streams->running[stream] = request;
  set_state(request, RUNNING);
}

// Under the lock.
void cancel(tune_streams* streams, tune_request* request) {
  __atomic_store_n(&request->cancelled, 1, __ATOMIC_SEQ_CST);
  if (request->state == WAITING) {
    leave_queue(streams, request);
    set_state(request, ENDED);
    futex(&request->state, FUTEX_WAKE, 1, nullptr);
  } else if (request->state == RUNNING) {
    const tune_stream* stream = &streams->streams[request->stream];
    stream->cancel(stream->core);
  }
}

// `before`: where the caller may run; known if it had to wait, so that another thread may have sent it elsewhere.
int take(tune_streams* streams, tune_request* request, int64_t timeout_ns, cpu_set_t* before) {
  pthread_mutex_lock(&streams->lock);
  if (request->cancelled == 0 && streams->idle_count > 0) {
    begin(streams, request, pop_idle(streams));
  } else if (request->cancelled == 0) {
    if (sched_getaffinity(0, sizeof(*before), before) != 0) CPU_ZERO(before);
    request->thread = static_cast<int32_t>(syscall(SYS_gettid));
    *streams->last = request;
    streams->last = &request->next;
    set_state(request, WAITING);
    pthread_mutex_unlock(&streams->lock);
    await_stream(request, timeout_ns);
    pthread_mutex_lock(&streams->lock);
    if (request->state == WAITING) {
      leave_queue(streams, request);
      set_state(request, ENDED);
    }
  }
  const int status = request->state == RUNNING ? TUNE_OK : request->cancelled != 0 ? TUNE_CANCELLED : TUNE_BUSY;
  pthread_mutex_unlock(&streams->lock);
  return status;
}

void free_core(tune_core* core) {
  for (int64_t i = 0; core->threads != nullptr && i < core->threads_count; ++i) {
    for (Workspace& space : core->threads[i].workspaces) unmap(&space.region);
  }
  for (int64_t i = 0; core->staged != nullptr && i < core->inputs_count; ++i) unmap(&core->staged[i]);
  unmap(&core->arena);
  for (Block* block = core->blocks; block != nullptr;) {
    Block* next = block->next;
    free(block);
    block = next;
  }
  free(core);
}

}  // namespace

// What compiled kernels ask of TVM's runtime: through pointers, and this one by its name.
extern "C" {
TUNE_API void* __TVMBackendParallelLaunch = reinterpret_cast<void*>(&launch);
TUNE_API void* __TVMBackendParallelBarrier = reinterpret_cast<void*>(&barrier);
TUNE_API void* __TVMBackendAllocWorkspace = reinterpret_cast<void*>(&allocate);
TUNE_API void* __TVMBackendFreeWorkspace = reinterpret_cast<void*>(&release);

__attribute__((visibility("hidden"))) void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  snprintf(raised, sizeof(raised), "%s: %s", kind, message);
}

__attribute__((visibility("hidden"))) void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts,
                                                                             int32_t count) {
  size_t used = static_cast<size_t>(snprintf(raised, sizeof(raised), "%s: ", kind));
  for (int32_t i = 0; i < count && used < sizeof(raised); ++i) {
    if (parts[i] != nullptr) used += static_cast<size_t>(snprintf(raised + used, sizeof(raised) - used, "%s", parts[i]));
  }
}

void tune_core_raise(const char* text) { snprintf(raised, sizeof(raised), "%s", text); }

void tune_core_hooks(void** hooks) {
  hooks[0] = reinterpret_cast<void*>(&launch);
  hooks[1] = reinterpret_cast<void*>(&barrier);
  hooks[2] = reinterpret_cast<void*>(&allocate);
  hooks[3] = reinterpret_cast<void*>(&release);
}

void tune_core_adopt(void* const* hooks) {
  __TVMBackendParallelLaunch = hooks[0];
  __TVMBackendParallelBarrier = hooks[1];
  __TVMBackendAllocWorkspace = hooks[2];
  __TVMBackendFreeWorkspace = hooks[3];
}

int tune_core_open(const tune_program* program, const tune_settings* settings, tune_core** made, tune_report* report) {
  *made = nullptr;
  if (settings->threads < 1) return say(report, TUNE_INVALID, "the number of threads must be at least 1");
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, sizeof(tune_core)) != 0) return say(report, TUNE_NO_MEMORY, "no memory");
  memset(memory, 0, sizeof(tune_core));
  tune_core* core = static_cast<tune_core*>(memory);
  core->huge_pages = settings->huge_pages != 0;
  core->threads_count = settings->threads;
  if (!keep(core, settings->threads, &core->threads) || !read_program(core, program)) {
    free_core(core);
    return say(report, TUNE_NO_MEMORY, "no memory for the arena");
  }
  for (int64_t i = 0; i < settings->threads; ++i) {
    core->threads[i].core = core;
    core->threads[i].number = i;
    core->threads[i].cpu = settings->cpus[i];
    core->has_devices = core->has_devices || settings->cpus[i] == SLEEPING;
  }
  find_direct_outputs(core);
  if (!threads_are_here(core)) {
    free_core(core);
    return say(report, TUNE_NO_THREADS, "a thread cannot be started");
  }
  *made = core;
  return say(report, TUNE_OK, "");
}

int tune_core_run(tune_core* core, const void* const* inputs, void* const* outputs, int64_t* times,
                  tune_report* report) {
  return tune_core_run_request(core, inputs, outputs, times, report, nullptr);
}

int tune_core_run_request(tune_core* core, const void* const* inputs, void* const* outputs, int64_t* times,
                          tune_report* report, const tune_request* request) {
  return tune_core_run_sizes(core, inputs, outputs, times, report, request, nullptr);
}

// Of each open size the rows that count in the next run; null: all.
void set_live(tune_core* core, const int64_t* live) {
  for (int size = 0; size < SIZES; ++size) {
    core->live[size] = live != nullptr && live[size] < core->rows[size] ? live[size] : 0;
  }
}

int tune_core_growth_steps(void) { return STEPS; }

int tune_core_run_sizes(tune_core* core, const void* const* inputs, void* const* outputs, int64_t* times,
                        tune_report* report, const tune_request* request, const int64_t* live) {
  if (!threads_are_here(core)) return say(report, TUNE_NO_THREADS, "a thread cannot be started after a fork");
  pthread_mutex_lock(&core->running);
  core->times = times;
  set_live(core, live);
  cpu_set_t before;
  const bool moved = begin_call(core, request, &before);
  int status = run_once(core, inputs, outputs, report);
  end_call(moved, &before);
  pthread_mutex_unlock(&core->running);
  return status;
}

int tune_core_run_rows(tune_core* core, const void* const* inputs, void* const* outputs, tune_report* report,
                       const tune_request* request, int64_t count) {
  if (!threads_are_here(core)) return say(report, TUNE_NO_THREADS, "a thread cannot be started after a fork");
  pthread_mutex_lock(&core->running);
  core->times = nullptr;
  set_live(core, nullptr);
  cpu_set_t before;
  const bool moved = begin_call(core, request, &before);
  int status = say(report, TUNE_OK, "");
  for (int64_t row = 0; row < count && status == TUNE_OK; ++row) {
    for (int64_t i = 0; i < core->inputs_count; ++i) {
      core->row_inputs[i] = static_cast<const char*>(inputs[i]) + row * core->input_bytes[i];
    }
    for (int64_t i = 0; i < core->outputs_count; ++i) {
      core->row_outputs[i] = static_cast<char*>(outputs[i]) + row * core->outputs[i].bytes;
    }
    status = run_once(core, core->row_inputs, core->row_outputs, report);
  }
  end_call(moved, &before);
  pthread_mutex_unlock(&core->running);
  return status;
}

void tune_core_cancel(tune_core* core) { core->abort.value.store(1); }

void tune_core_close(tune_core* core) {
  if (core == nullptr) return;
  if (core->life.load() == lives.load()) join_threads(core, core->threads_count);
  free_core(core);
}

int tune_streams_open(const tune_stream* streams, int64_t count, tune_streams** made) {
  const size_t each = sizeof(tune_stream) + sizeof(int64_t) + sizeof(tune_request*);
  const size_t bytes = sizeof(tune_streams) + static_cast<size_t>(count) * each;
  *made = static_cast<tune_streams*>(calloc(1, bytes));
  if (*made == nullptr) return TUNE_NO_MEMORY;
  pthread_mutex_init(&(*made)->lock, nullptr);
  (*made)->count = (*made)->idle_count = count;
  (*made)->streams = reinterpret_cast<tune_stream*>(*made + 1);
  (*made)->idle = reinterpret_cast<int64_t*>((*made)->streams + count);
  (*made)->running = reinterpret_cast<tune_request**>((*made)->idle + count);
  (*made)->last = &(*made)->first;
  memcpy((*made)->streams, streams, static_cast<size_t>(count) * sizeof(tune_stream));
  (*made)->run_ns.store(SHORT_NS);
  for (int64_t i = 0; i < count; ++i) (*made)->idle[i] = count - 1 - i;
  return TUNE_OK;
}

void tune_streams_close(tune_streams* streams) { free(streams); }

int tune_streams_take(tune_streams* streams, tune_request* request, int64_t timeout_ns) {
  cpu_set_t before;
  const int status = take(streams, request, timeout_ns, &before);
  if (request->thread != 0) sched_setaffinity(0, sizeof(before), &before);
  return status;
}

void tune_streams_give(tune_streams* streams, tune_request* request) {
  const int64_t stream = request->stream;
  pthread_mutex_lock(&streams->lock);
  set_state(request, ENDED);
  tune_request* next = streams->first;
  if (next == nullptr) {
    streams->running[stream] = nullptr;
    streams->idle[streams->idle_count++] = stream;
  } else {
    leave_queue(streams, next);
    const int64_t cpu = streams->streams[stream].cpu;
    if (cpu >= 0) {  // it wakes up where it is to run, and not where another stream runs
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(static_cast<int>(cpu), &one);
      sched_setaffinity(next->thread, sizeof(one), &one);
    }
    begin(streams, next, stream);
  }
  pthread_mutex_unlock(&streams->lock);
  if (next != nullptr) futex(&next->state, FUTEX_WAKE, 1, nullptr);  // the address alone: it may have woken by itself
}

int tune_streams_run(tune_streams* streams, tune_request* request, int64_t timeout_ns, const void* const* inputs,
                     void* const* outputs, tune_report* report) {
  cpu_set_t before;
  const int status = take(streams, request, timeout_ns, &before);
  if (status != TUNE_OK) return say(report, status, status == TUNE_BUSY ? "no stream was free" : "the run was cancelled");
  const tune_stream* stream = &streams->streams[request->stream];
  const bool waited = request->thread != 0;
  const bool is_short = streams->run_ns.load(std::memory_order_relaxed) < SHORT_NS;
  const bool moved = waited || (!is_short && sched_getaffinity(0, sizeof(before), &before) == 0);
  // It stays on its CPU, also when a thread that wakes up there takes its place.
  if (moved && stream->cpu >= 0) pin(stream->cpu);
  // The thread that left the stream to this one may still be on the CPU: its answer would wait for a whole run.
  if (waited) sched_yield();
  Share own;
  const bool sliced = !is_short && take_long_slice(&own);
  const int64_t began = now_ns();
  const int ended = stream->run(stream->core, inputs, outputs, nullptr, report, request);
  if (ended == TUNE_OK) streams->run_ns.store(now_ns() - began, std::memory_order_relaxed);
  if (sliced) set_slice(own, own.runtime);
  // Before the next request gets the stream, beside which this thread would have to stay.
  if (moved) sched_setaffinity(0, sizeof(before), &before);
  tune_streams_give(streams, request);
  return ended;
}

int tune_streams_call(tune_call* call) {
  const void** places = call->places;
  for (int64_t i = 0; i < call->arrays; ++i) {
    memcpy(&places[i], static_cast<const char*>(places[i]) + call->at, sizeof(void*));
  }
  return tune_streams_run(call->streams, &call->request, call->timeout_ns, places,
                          const_cast<void* const*>(places + call->inputs), &call->report);
}

void tune_streams_cancel(tune_streams* streams, tune_request* request) {
  pthread_mutex_lock(&streams->lock);
  cancel(streams, request);
  pthread_mutex_unlock(&streams->lock);
}

void tune_streams_cancel_runs(tune_streams* streams) {
  pthread_mutex_lock(&streams->lock);
  for (int64_t i = 0; i < streams->count; ++i) {
    if (streams->running[i] != nullptr) cancel(streams, streams->running[i]);
  }
  pthread_mutex_unlock(&streams->lock);
}
}
