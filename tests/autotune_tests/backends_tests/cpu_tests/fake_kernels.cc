// Kernels for tests of the driver: exact, cheap, and sensitive to the order in which they run.
#include <math.h>
#include <time.h>
#include <tvm/ffi/c_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>

extern "C" {
__attribute__((weak)) void* __TVMBackendParallelLaunch = nullptr;
__attribute__((weak)) void* __TVMBackendAllocWorkspace = nullptr;
__attribute__((weak)) void* __TVMBackendFreeWorkspace = nullptr;
char *workspace = nullptr, *workspace_end = nullptr;  // around all of the last kernel that had some
char* written = nullptr;                              // by it
}

namespace {

struct Env {
  void* sync;
  int num_task;
};

struct Job {
  const TVMFFIAny* args;
  int count;
};

double* data(const TVMFFIAny& any, int64_t* size) {
  DLTensor* tensor = static_cast<DLTensor*>(any.v_ptr);
  *size = tensor->ndim ? tensor->shape[0] : 1;
  return static_cast<double*>(tensor->data);
}

// y[i] = (1 + i + sum over j of (j + 1) x_j[(7 i + j) mod size]) mod 1000, every task its share of i.
int mix_share(int task, Env* env, void* closure) {
  Job* job = static_cast<Job*>(closure);
  int64_t size, other;
  double* y = data(job->args[job->count - 1], &size);
  for (int64_t i = task; i < size; i += env->num_task) {
    double sum = 1.0 + static_cast<double>(i);
    for (int j = 0; j + 1 < job->count; ++j) {
      double* x = data(job->args[j], &other);
      sum += (j + 1) * x[(7 * i + j) % other];
    }
    y[i] = fmod(sum, 1000.0);
  }
  return 0;
}

// y[i] = 2 x[i], every task some neighbours.
int twice_share(int task, Env* env, void* closure) {
  Job* job = static_cast<Job*>(closure);
  int64_t size, other;
  double* y = data(job->args[1], &size);
  const double* x = data(job->args[0], &other);
  const int64_t share = (size + env->num_task - 1) / env->num_task;
  for (int64_t i = task * share; i < std::min(size, (task + 1) * share); ++i) y[i] = 2.0 * x[i];
  return 0;
}

// y[i] = 2 x[i] + 0 x[size - 1]: as twice_share, of numbers.
int glance_share(int task, Env* env, void* closure) {
  Job* job = static_cast<Job*>(closure);
  int64_t size;
  const double* x = data(job->args[0], &size);
  double* y = data(job->args[1], &size);
  const double last = 0.0 * x[size - 1];
  const int64_t share = (size + env->num_task - 1) / env->num_task;
  for (int64_t i = task * share; i < std::min(size, (task + 1) * share); ++i) y[i] = 2.0 * x[i] + last;
  return 0;
}

// Space that a loop makes for the next one.
struct Pairs {
  const TVMFFIAny* args;
  double twice[64];
};

// As twice_share, into that space.
int pairs_prepared(int task, Env* env, void* closure) {
  Pairs* pairs = static_cast<Pairs*>(closure);
  int64_t size;
  const double* x = data(pairs->args[0], &size);
  const int64_t share = (size + env->num_task - 1) / env->num_task;
  for (int64_t i = task * share; i < std::min(size, (task + 1) * share); ++i) pairs->twice[i] = 2.0 * x[i];
  return 0;
}

// y[i] = 2 x[2 i] + 2 x[2 i + 1], where there is such a number.
int pairs_added(int task, Env* env, void* closure) {
  Pairs* pairs = static_cast<Pairs*>(closure);
  int64_t size, half;
  data(pairs->args[0], &size);
  double* y = data(pairs->args[1], &half);
  const int64_t share = (half + env->num_task - 1) / env->num_task;
  for (int64_t i = task * share; i < std::min(half, (task + 1) * share); ++i) {
    y[i] = pairs->twice[2 * i] + (2 * i + 1 < size ? pairs->twice[2 * i + 1] : 0.0);
  }
  return 0;
}

std::atomic_flag noting = ATOMIC_FLAG_INIT;

struct Space {
  explicit Space(int64_t count, double value) : count(count), value(value) {
    auto allocate = reinterpret_cast<void* (*)(int, int, uint64_t, int, int)>(__TVMBackendAllocWorkspace);
    at = static_cast<double*>(allocate(1, 0, static_cast<uint64_t>(count) * sizeof(double), 2, 64));
    for (int64_t i = 0; i < count; ++i) at[i] = value;
    while (noting.test_and_set()) {
    }
    workspace = std::min(workspace, reinterpret_cast<char*>(at));
    workspace_end = std::max(workspace_end, reinterpret_cast<char*>(at + count));
    noting.clear();
  }
  // Whether it is as it was, and given back.
  bool intact() {
    bool same = true;
    for (int64_t i = 0; i < count; ++i) same = same && at[i] == value;
    return reinterpret_cast<int (*)(int, int, void*)>(__TVMBackendFreeWorkspace)(1, 0, at) == 0 && same;
  }
  int64_t count;
  double value;
  double* at;
};

// As mix_share, between workspaces that are filled before and looked at after; the smaller one is asked for first or last.
int scratch_share(int task, Env* env, void* closure) {
  Job* job = static_cast<Job*>(closure);
  int64_t size;
  data(job->args[job->count - 1], &size);
  bool good = true;
  for (int turn = 0; turn < 3; ++turn) {
    const int64_t counts[] = {size / 8 + 1, size / 4};
    Space first(counts[turn % 2], task + 1.0), second(counts[1 - turn % 2], -task - 1.0);
    mix_share(task, env, closure);
    good = second.intact() && good;
    good = first.intact() && good;
  }
  return good ? 0 : -1;
}

std::atomic<int64_t> shares{0}, begun{0};  // of one loop: their numbers plus one added up, and how many there were

// Adds its share; that of a helper is long enough for the leader to look for it meanwhile.
int tally_share(int task, Env*, void*) {
  shares.fetch_add(task + 1);
  begun.fetch_add(1);
  for (volatile int i = 0; task > 0 && i < 3000; ++i) {
  }
  return 0;
}

// Takes `ns`, whatever sleeping takes longer than it was asked for: up to 220 µs on virtual machines.
void nap(long ns) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
  struct timespec time = {0, ns - 300000};
  nanosleep(&time, nullptr);
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace

extern "C" int __tvm_ffi_twice(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny*) {
  Job job = {args, count};
  auto launch = reinterpret_cast<int (*)(int (*)(int, Env*, void*), void*, int)>(__TVMBackendParallelLaunch);
  return launch(twice_share, &job, 0);
}

extern "C" int __tvm_ffi_glance(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny*) {
  Job job = {args, count};
  auto launch = reinterpret_cast<int (*)(int (*)(int, Env*, void*), void*, int)>(__TVMBackendParallelLaunch);
  return launch(glance_share, &job, 0);
}

extern "C" int __tvm_ffi_pairs(void*, const TVMFFIAny* args, int32_t, TVMFFIAny*) {
  Pairs pairs = {args, {}};
  auto launch = reinterpret_cast<int (*)(int (*)(int, Env*, void*), void*, int)>(__TVMBackendParallelLaunch);
  const int failed = launch(pairs_prepared, &pairs, 0);
  return failed | launch(pairs_added, &pairs, 0);
}

extern "C" int __tvm_ffi_mix(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny*) {
  Job job = {args, count};
  auto launch = reinterpret_cast<int (*)(int (*)(int, Env*, void*), void*, int)>(__TVMBackendParallelLaunch);
  return launch(mix_share, &job, 0);
}

// y = (sum, count) of the shares of one loop over so many tasks as there are threads, all of which have ended.
extern "C" int __tvm_ffi_tally(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny*) {
  int64_t size;
  double* y = data(args[count - 1], &size);
  shares.store(0);
  begun.store(0);
  auto launch = reinterpret_cast<int (*)(int (*)(int, Env*, void*), void*, int)>(__TVMBackendParallelLaunch);
  const int failed = launch(tally_share, nullptr, 0);
  for (int64_t i = 0; i < size; ++i) y[i] = static_cast<double>(i % 2 == 0 ? shares.load() : begun.load());
  return failed;
}

extern "C" int __tvm_ffi_slow(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  nap(1000000);
  return __tvm_ffi_mix(self, args, count, result);
}

// Fails where its first argument begins with a negative number.
extern "C" int __tvm_ffi_touchy(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  int64_t size;
  if (data(args[0], &size)[0] < 0.0) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "it is negative");
    return -1;
  }
  return __tvm_ffi_mix(self, args, count, result);
}

extern "C" int __tvm_ffi_scratch(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny*) {
  Job job = {args, count};
  int64_t size;
  double* y = data(args[count - 1], &size);
  workspace = reinterpret_cast<char*>(UINTPTR_MAX);
  workspace_end = nullptr;
  Space space(size / 4, 0.5);
  written = reinterpret_cast<char*>(y);
  auto launch = reinterpret_cast<int (*)(int (*)(int, Env*, void*), void*, int)>(__TVMBackendParallelLaunch);
  int failed = launch(scratch_share, &job, 0);
  return space.intact() && failed == 0 ? 0 : -1;
}
