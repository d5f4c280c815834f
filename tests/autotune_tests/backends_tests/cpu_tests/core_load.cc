// A load on core.cc for sanitizers: sixteen threads run good and failing programs on shared cores and streams, give up,
// cancel each other, and open and close cores of their own. Every answer is checked. Ends with 0 and "ok" if all is well.
//
//   core_load SECONDS
#include "core.cc"

#include <sys/wait.h>

#include <vector>

namespace {

const int64_t ROWS = 4, PARTS = 16, SIZE = ROWS * PARTS, CLIENTS = 16, STREAMS = 2;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition);     \
      abort();                                                                  \
    }                                                                           \
  } while (0)

struct Job {
  const double* x;
  double* y;
};

Job job_of(const Any* args) {
  return {static_cast<double*>(static_cast<Tensor*>(args[0].pointer)->data),
          static_cast<double*>(static_cast<Tensor*>(args[1].pointer)->data)};
}

int parallel(Lambda share, Job* job) {
  return reinterpret_cast<int (*)(Lambda, void*, int)>(__TVMBackendParallelLaunch)(share, job, 0);
}

double* workspace() {
  return static_cast<double*>(
      reinterpret_cast<void* (*)(int, int, uint64_t, int, int)>(__TVMBackendAllocWorkspace)(1, 0, 8 * SIZE, 2, 64));
}

int give_back(void* memory) {
  return reinterpret_cast<int (*)(int, int, void*)>(__TVMBackendFreeWorkspace)(1, 0, memory);
}

// y = x + 1 by way of a workspace; fails where x is negative, without giving the workspace back, as compiled kernels do.
int add_share(int task, Env* env, void* data) {
  const Job* job = static_cast<Job*>(data);
  double* space = workspace();
  if (space == nullptr) return -1;
  for (int64_t i = task; i < SIZE; i += env->num_task) {
    if (job->x[i] < 0) {
      tune_core_raise("it is negative");
      return -1;
    }
    space[i] = job->x[i] + 1;
    job->y[i] = space[i];
  }
  return give_back(space);
}

// The same with a barrier between the tasks, which one that fails does not reach.
int meet_share(int task, Env* env, void* data) {
  const Job* job = static_cast<Job*>(data);
  if (job->x[task] < 0) return -1;
  if (reinterpret_cast<int (*)(int, Env*)>(__TVMBackendParallelBarrier)(task, env) != 0) return -1;
  for (int64_t i = task; i < SIZE; i += env->num_task) job->y[i] = job->x[i] + 1;
  return 0;
}

int add(void*, const Any* args, int32_t, Any*) {
  Job job = job_of(args);
  return parallel(&add_share, &job);
}

int meet(void*, const Any* args, int32_t, Any*) {
  Job job = job_of(args);
  return parallel(&meet_share, &job);
}

std::atomic<bool> told{false};

// Runs until somebody was told to end.
int slow(void*, const Any* args, int32_t, Any*) {
  while (!told.load()) sched_yield();
  const Job job = job_of(args);
  for (int64_t i = 0; i < SIZE; ++i) job.y[i] = job.x[i] + 1;
  return 0;
}

void* const KERNELS[] = {reinterpret_cast<void*>(&add), reinterpret_cast<void*>(&meet), reinterpret_cast<void*>(&slow)};
enum { ADD = 0, MEET = 1, SLOW = 2 };

// One chain of calls per group, all on the program's input; the output is that of the last group.
struct Chain {
  int64_t first, threads;
  std::vector<int64_t> calls;
};

std::vector<int64_t> words_of(const std::vector<Chain>& chains) {
  int64_t arena = 0, calls = 0;
  std::vector<int64_t> groups;
  for (const Chain& chain : chains) {
    groups.insert(groups.end(), {chain.first, chain.threads, 0, static_cast<int64_t>(chain.calls.size())});
    for (size_t i = 0; i < chain.calls.size(); ++i, ++calls) {
      const int64_t from = i == 0 ? static_cast<int64_t>(INPUT) : static_cast<int64_t>(ARENA);
      groups.insert(groups.end(), {chain.calls[i], 2, from, i == 0 ? 0 : arena - 8 * SIZE, 2, 64, 1, SIZE});
      groups.insert(groups.end(), {ARENA, arena, 2, 64, 1, SIZE});
      arena += 8 * SIZE;
    }
  }
  std::vector<int64_t> words = {arena + 1024, 1, 8 * SIZE, 1, ARENA, arena - 8 * SIZE, 8 * SIZE,
                                static_cast<int64_t>(chains.size())};
  words.insert(words.end(), groups.begin(), groups.end());
  for (int64_t i = 0; i < calls; ++i) words.insert(words.end(), {arena, i % 2 != 0 ? 1024 : 0});
  words.push_back(2);  // open sizes: a job of ADD makes a part of a row, and MEET, which has a barrier, always runs whole
  for (const bool of_rows : {true, false}) {
    words.push_back(of_rows ? ROWS : PARTS);
    for (const Chain& chain : chains) {
      for (int64_t kernel : chain.calls) {
        if (kernel != ADD) words.insert(words.end(), {0, 0, 0, 0, 1, 0});
        else if (of_rows) words.insert(words.end(), {SIZE, PARTS, ROWS, 1, 1, 8 * PARTS});
        else words.insert(words.end(), {SIZE, 1, PARTS, 1, ROWS, 8});
      }
    }
  }
  words.push_back(0);  // calls with a condition
  return words;
}

struct Shape {
  std::vector<int64_t> words;
  int64_t threads;
  double added;
};

const Shape SHAPES[] = {
    {words_of({{0, 0, {ADD, MEET, ADD, ADD}}}), 2, 4},
    {words_of({{0, 2, {ADD, MEET}}, {2, 1, {ADD, ADD, ADD}}}), 3, 3},
    {words_of({{0, 1, {ADD, ADD}}}), 1, 2},
};
const Shape LONG = {words_of({{0, 1, {SLOW, SLOW}}}), 1, 2};

tune_core* opened(const Shape& shape) {
  const int64_t cpus[] = {-1, -1, -1};
  const tune_program program = {shape.words.data(), KERNELS, nullptr};
  const tune_settings settings = {shape.threads, cpus, 1};
  tune_core* core = nullptr;
  tune_report report;
  CHECK(tune_core_open(&program, &settings, &core, &report) == TUNE_OK && report.text[0] == 0);
  return core;
}

// The arguments of a run, and what becomes of it.
struct Try {
  Try(double value, const Shape& shape) : value(value), added(shape.added), input(SIZE, value), output(SIZE, -1) {}
  // `rows` and `parts`: how many count; numbers of others are zero.
  void check(int status, int64_t rows = ROWS, int64_t parts = PARTS) const {
    if (status == TUNE_OK) {
      CHECK(value >= 0);
      for (int64_t i = 0; i < SIZE; ++i) {
        CHECK(output[i] == (i / PARTS < rows && i % PARTS < parts ? value + added : 0));
      }
    } else if (status == TUNE_FAILED) {
      CHECK(value < 0 && report.group >= 0 && report.text[0] != 0);
    } else {
      CHECK(status == TUNE_CANCELLED || status == TUNE_BUSY);
    }
  }
  double value, added;
  std::vector<double> input, output;
  const void* inputs[1] = {input.data()};
  void* outputs[1] = {output.data()};
  tune_report report = {};
};

tune_core* shared[3];
tune_streams* streams[2];
pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
tune_request* slots[CLIENTS];  // requests that may be cancelled
std::atomic<bool> stop{false};
std::atomic<int64_t> counts[TUNE_BUSY + 1];

int on_streams(int64_t client, int64_t kind, Try* attempt, int64_t timeout_ns) {
  tune_request request = {};
  pthread_mutex_lock(&slots_lock);
  slots[client] = &request;
  pthread_mutex_unlock(&slots_lock);
  const int status = tune_streams_run(streams[kind], &request, timeout_ns, attempt->inputs, attempt->outputs, &attempt->report);
  pthread_mutex_lock(&slots_lock);
  slots[client] = nullptr;
  pthread_mutex_unlock(&slots_lock);
  return status;
}

void cancel_somebody(int64_t victim) {
  pthread_mutex_lock(&slots_lock);
  // Those of the first kind of streams: which a request is of is not kept.
  if (victim < CLIENTS / 2 && slots[victim] != nullptr) tune_streams_cancel(streams[0], slots[victim]);
  pthread_mutex_unlock(&slots_lock);
}

// A call of several rows, of which the last one fails if `value` is negative.
int run_rows(int which, double value, int64_t count) {
  std::vector<double> input, output(count * SIZE, -1);
  for (int64_t row = 0; row < count; ++row) input.insert(input.end(), SIZE, value < 0 && row + 1 == count ? -1 : row + 7);
  const void* inputs[] = {input.data()};
  void* outputs[] = {output.data()};
  tune_report report = {};
  const int status = tune_core_run_rows(shared[which], inputs, outputs, &report, nullptr, count);
  if (status == TUNE_OK) {
    CHECK(value >= 0);
    for (int64_t i = 0; i < count * SIZE; ++i) CHECK(output[i] == i / SIZE + 7 + SHAPES[which].added);
  } else if (status == TUNE_FAILED) {
    CHECK(value < 0 && report.group >= 0 && report.text[0] != 0);
  } else {
    CHECK(status == TUNE_CANCELLED);
  }
  return status;
}

void* client(void* argument) {
  const int64_t number = reinterpret_cast<intptr_t>(argument);
  const int64_t kind = number < CLIENTS / 2 ? 0 : 1;
  unsigned seed = static_cast<unsigned>(number) + 1;
  const int64_t timeouts[] = {-1, 0, 1000, 2000000, INT64_MAX};
  while (!stop.load()) {
    const int what = rand_r(&seed) % 18;
    const double value = rand_r(&seed) % 4 == 0 ? -1 : rand_r(&seed) % 1000;
    int status = TUNE_OK;
    if (what < 6) {
      Try attempt(value, SHAPES[2 * kind]);
      attempt.check(status = on_streams(number, kind, &attempt, timeouts[rand_r(&seed) % 5]));
    } else if (what < 11) {
      const int which = rand_r(&seed) % 3;
      const int64_t live[] = {rand_r(&seed) % 2 != 0 ? ROWS : 1 + rand_r(&seed) % ROWS,
                              rand_r(&seed) % 2 != 0 ? PARTS : 1 + rand_r(&seed) % PARTS};
      Try attempt(value, SHAPES[which]);
      status = tune_core_run_sizes(shared[which], attempt.inputs, attempt.outputs, nullptr, &attempt.report, nullptr, live);
      attempt.check(status, live[0], live[1]);
    } else if (what < 13) {
      cancel_somebody(rand_r(&seed) % CLIENTS);
    } else if (what == 13) {
      tune_core_cancel(shared[rand_r(&seed) % 3]);
      if (rand_r(&seed) % 8 == 0) tune_streams_cancel_runs(streams[kind]);
    } else if (what == 14) {
      const int which = rand_r(&seed) % 3;
      Try attempt(value, SHAPES[which]);
      tune_core* own = opened(SHAPES[which]);
      attempt.check(status = tune_core_run(own, attempt.inputs, attempt.outputs, nullptr, &attempt.report));
      tune_core_close(own);
    } else if (what > 15) {
      status = run_rows(rand_r(&seed) % 3, value, 1 + rand_r(&seed) % 5);
    } else {
      tune_request request = {};
      if (tune_streams_take(streams[kind], &request, 1000000) == TUNE_OK) tune_streams_give(streams[kind], &request);
    }
    counts[status].fetch_add(1);
  }
  return nullptr;
}

struct Victim {
  tune_streams* streams;
  tune_request request = {};
  std::atomic<int> begun{0};
  int status = TUNE_OK;
};

void* run_long(void* argument) {
  Victim* victim = static_cast<Victim*>(argument);
  Try attempt(1, LONG);
  victim->begun.store(1);
  victim->status = tune_streams_run(victim->streams, &victim->request, -1, attempt.inputs, attempt.outputs, &attempt.report);
  attempt.check(victim->status);
  return nullptr;
}

// Whenever a request is cancelled before it has ended, it ends as cancelled.
void lose_no_cancellation(int64_t count) {
  tune_core* core = opened(LONG);
  const tune_stream stream = {core, &tune_core_run_request, &tune_core_cancel, -1};
  tune_streams* own;
  CHECK(tune_streams_open(&stream, 1, &own) == TUNE_OK);
  unsigned seed = 7;
  for (int64_t i = 0; i < count; ++i) {
    Victim victim;
    victim.streams = own;
    told.store(false);
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, &run_long, &victim) == 0);
    while (victim.begun.load() == 0) sched_yield();
    for (int turns = rand_r(&seed) % 2000; turns > 0; --turns) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (i % 2 == 0) {
      tune_streams_cancel(own, &victim.request);
    } else {  // all that run; it may not have begun
      while (__atomic_load_n(&victim.request.state, __ATOMIC_ACQUIRE) != RUNNING) sched_yield();
      tune_streams_cancel_runs(own);
    }
    told.store(true);  // the first kernel ends, and the second is not run
    pthread_join(thread, nullptr);
    CHECK(victim.status == TUNE_CANCELLED);
  }
  tune_streams_close(own);
  tune_core_close(core);
}

void good_runs() {
  for (int which = 0; which < 3; ++which) {
    Try attempt(5, SHAPES[which]);
    CHECK(tune_core_run(shared[which], attempt.inputs, attempt.outputs, nullptr, &attempt.report) == TUNE_OK);
    attempt.check(TUNE_OK);
  }
  for (int64_t i = 0; i < 2 * STREAMS; ++i) {
    Try attempt(6, SHAPES[2 * (i % 2)]);
    CHECK(on_streams(0, i % 2, &attempt, -1) == TUNE_OK);
    attempt.check(TUNE_OK);
  }
}

// Children of a process that is busy run all the same.
void fork_busy(int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(30);
      for (int which = 0; which < 3; ++which) {
        Try attempt(5, SHAPES[which]);
        if (tune_core_run(shared[which], attempt.inputs, attempt.outputs, nullptr, &attempt.report) != TUNE_OK) _exit(1);
        attempt.check(TUNE_OK);
      }
      _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}

// Runs without allocating: a sanitizer's allocator may not be in use when a process forks.
void* be_busy(void*) {
  static Try attempt(5, SHAPES[1]);
  while (!stop.load()) {
    attempt.check(tune_core_run(shared[1], attempt.inputs, attempt.outputs, nullptr, &attempt.report));
  }
  return nullptr;
}

}  // namespace

int main(int, char** arguments) {
  std::vector<tune_core*> cores[2];
  for (int which = 0; which < 3; ++which) shared[which] = opened(SHAPES[which]);
  for (int kind = 0; kind < 2; ++kind) {
    std::vector<tune_stream> table;
    for (int64_t i = 0; i < STREAMS; ++i) {
      cores[kind].push_back(opened(SHAPES[2 * kind]));
      table.push_back({cores[kind].back(), &tune_core_run_request, &tune_core_cancel, i});
    }
    CHECK(tune_streams_open(table.data(), STREAMS, &streams[kind]) == TUNE_OK);
  }
  for (int i = 0; i < 3 * WORKSPACES; ++i) {  // failed runs keep no workspace
    Try attempt(-1, SHAPES[0]);
    CHECK(tune_core_run(shared[0], attempt.inputs, attempt.outputs, nullptr, &attempt.report) == TUNE_FAILED);
    CHECK(strcmp(attempt.report.text, "it is negative") == 0);
  }
  good_runs();
  lose_no_cancellation(300);
#if !defined(__SANITIZE_THREAD__)  // which does not follow a fork of several threads
  pthread_t busy;
  CHECK(pthread_create(&busy, nullptr, &be_busy, nullptr) == 0);
  fork_busy(20);
  stop.store(true);
  pthread_join(busy, nullptr);
  stop.store(false);
#endif
  pthread_t threads[CLIENTS];
  for (int64_t i = 0; i < CLIENTS; ++i) {
    CHECK(pthread_create(&threads[i], nullptr, &client, reinterpret_cast<void*>(static_cast<intptr_t>(i))) == 0);
  }
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  fork_busy(20);
#endif
  const int64_t end = now_ns() + static_cast<int64_t>(1e9 * atof(arguments[1]));
  while (now_ns() < end) usleep(10000);
  stop.store(true);
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  good_runs();
  for (int kind = 0; kind < 2; ++kind) {
    tune_streams_close(streams[kind]);
    for (tune_core* core : cores[kind]) tune_core_close(core);
  }
  for (tune_core* core : shared) tune_core_close(core);
  printf("ok: %ld good, %ld failed, %ld cancelled, %ld busy\n", static_cast<long>(counts[TUNE_OK]),
         static_cast<long>(counts[TUNE_FAILED]), static_cast<long>(counts[TUNE_CANCELLED]),
         static_cast<long>(counts[TUNE_BUSY]));
  return counts[TUNE_FAILED] > 0 && counts[TUNE_CANCELLED] > 0 && counts[TUNE_BUSY] > 0 ? 0 : 1;
}
