/* What runs beside a kernel on an RPC device that has nothing but TVM: reading the kernel's files, limits, and timing.
 *
 * It is linked into every library that is sent there (autotune/measure/remote/rpc_session.py). All functions have TVM's packed
 * calling convention; TUNE_KERNEL and TUNE_PRODUCER are the candidate and the kernel that warms activations, set by
 * the linker. The rules of timing are those of autotune/measure/kernel_timing.py.
 *
 * TVM 0.27's RPC server stops listening for good when a session's process does not exit with status 0, so whatever
 * kills a candidate is turned into that; the note beside says what it was. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <exception>
#include <new>

extern "C" {

#define EXPORT(name) int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result)
#define MOST_PARAMS 64
#define LINE 64

static DLTensor* tensor(const TVMFFIAny* arg) { return (DLTensor*)arg->v_ptr; }

static char* data(const DLTensor* t) { return (char*)t->data + t->byte_offset; }

static uint64_t bytes_of(const DLTensor* t) {
  uint64_t count = 1;
  for (int i = 0; i < t->ndim; ++i) count *= (uint64_t)t->shape[i];
  return count * ((t->dtype.bits * t->dtype.lanes + 7) / 8);
}

static int answer_int(TVMFFIAny* result, int64_t value) {
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = value;
  return 0;
}

#ifndef TUNE_TIMER
static int note = -1;

static void leave(const char* text, size_t length) {
  if (note >= 0 && write(note, text, length) < 0) _exit(0);
  _exit(0);
}

static void last_will(int number) {
  const char text[2] = {(char)('0' + number / 10 % 10), (char)('0' + number % 10)};
  leave(text, 2);
}

static void no_catcher() {
  try {
    if (std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    leave("memory", 6);
  } catch (...) {
    leave("06", 2);
  }
  leave("06", 2);
}
#endif

#ifndef TUNE_TIMER
static int turn = -1;

/* (path as bytes, ended by 0; buffer) -> bytes read, or -1 */
EXPORT(tune_read) {
  int file = open(data(tensor(&args[0])), O_RDONLY | O_CLOEXEC);
  if (file < 0) return answer_int(result, -1);
  char* out = data(tensor(&args[1]));
  int64_t size = (int64_t)bytes_of(tensor(&args[1])), done = 0;
  while (done < size) {
    ssize_t got = read(file, out + done, (size_t)(size - done));
    if (got <= 0) break;
    done += got;
  }
  close(file);
  return answer_int(result, done);
}

/* (path of the note as bytes, ended by 0): deaths from here on are told there and leave the server alive. */
EXPORT(tune_guard) {
  const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM, SIGTERM};
  note = open(data(tensor(&args[0])), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  for (unsigned i = 0; i < sizeof signals / sizeof *signals; ++i) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = last_will;
    sigaction(signals[i], &action, NULL);
  }
  std::set_terminate(no_catcher);
  return answer_int(result, note >= 0);
}

/* (path as bytes) */
EXPORT(tune_remove) { return answer_int(result, unlink(data(tensor(&args[0])))); }

/* (seconds, bytes): this process may live so long, 0 for ever, and grow so much from here on. */
EXPORT(tune_limit) {
  struct rlimit limit;
  uint64_t pages = 0;
  FILE* statm = fopen("/proc/self/statm", "r");
  if (statm != NULL) {
    unsigned long long read_pages = 0;
    if (fscanf(statm, "%llu", &read_pages) == 1) pages = read_pages;
    fclose(statm);
  }
  if (pages != 0 && args[1].v_int64 > 0 && getrlimit(RLIMIT_AS, &limit) == 0) {
    limit.rlim_cur = (rlim_t)(pages * (uint64_t)sysconf(_SC_PAGESIZE) + (uint64_t)args[1].v_int64);
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_cur > limit.rlim_max) limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_AS, &limit);
  }
  alarm((unsigned)args[0].v_int64);
  return answer_int(result, 0);
}

/* (beginning of a path as bytes, 1 to take or 0 to give back) -> 1 if it is this process's turn to run alone. Only
   processes of one user take turns: another user's file could be locked for ever. */
EXPORT(tune_lock) {
  char path[256];
  struct stat status;
  snprintf(path, sizeof(path), "%s-%u.lock", data(tensor(&args[0])), (unsigned)geteuid());
  if (turn < 0) turn = open(path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (turn >= 0 && (fstat(turn, &status) != 0 || status.st_uid != geteuid())) {
    close(turn);
    turn = -1;
  }
  if (turn < 0) return answer_int(result, 1); /* nobody can take turns where there is no place for the file */
  return answer_int(result, flock(turn, args[1].v_int64 ? LOCK_EX | LOCK_NB : LOCK_UN) == 0);
}

/* (block, out): out is filled with the block, again and again. */
EXPORT(tune_fill) {
  uint64_t step = bytes_of(tensor(&args[0])), size = bytes_of(tensor(&args[1]));
  for (uint64_t at = 0; at < size; at += step)
    memcpy(data(tensor(&args[1])) + at, data(tensor(&args[0])), size - at < step ? size - at : step);
  return answer_int(result, 0);
}

/* (value, stretches of bytes...) -> 1 if every byte still has the value. */
EXPORT(tune_is_fenced) {
  for (int i = 1; i < count; ++i)
    for (uint64_t at = 0; at < bytes_of(tensor(&args[i])); ++at)
      if ((uint8_t)data(tensor(&args[i]))[at] != (uint8_t)args[0].v_int64) return answer_int(result, 0);
  return answer_int(result, 1);
}
#endif

#ifdef TUNE_TIMER
int tune_kernel(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result);
int tune_producer(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result);

/* Cut the marked tensors from their arena: the stretch after the last one, each at a cache line. */
static void cut(DLTensor* views, const char* plan, int n, char mark, const DLTensor* arena, int64_t turn_number) {
  uint64_t total = 0, place;
  for (int i = 0; i < n; ++i)
    if (plan[i] == mark) total += (bytes_of(&views[i]) + LINE - 1) / LINE * LINE;
  if (total == 0 || total > bytes_of(arena)) return;
  place = (uint64_t)turn_number % (bytes_of(arena) / total) * total;
  for (int i = 0; i < n; ++i) {
    if (plan[i] != mark) continue;
    views[i].data = data(arena) + place;
    views[i].byte_offset = 0;
    place += (bytes_of(&views[i]) + LINE - 1) / LINE * LINE;
  }
}

/* The kernel's arguments: views of the tensors that begin where their data do, as compiled kernels demand. */
static void pass(const TVMFFIAny* args, int n, DLTensor* views, TVMFFIAny* given) {
  for (int i = 0; i < n; ++i) {
    views[i] = *tensor(&args[i]);
    views[i].data = data(tensor(&args[i]));
    views[i].byte_offset = 0;
    given[i].type_index = kTVMFFIDLTensorPtr;
    given[i].zero_padding = 0;
    given[i].v_ptr = &views[i];
  }
}

/* (the kernel's parameters...): run it once. */
EXPORT(tune_call) {
  DLTensor views[MOST_PARAMS];
  TVMFFIAny given[MOST_PARAMS];
  if (count > MOST_PARAMS) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "the kernel has more parameters than can be timed on a device");
    return -1;
  }
  pass(args, count, views, given);
  return tune_kernel(NULL, given, count, result);
}

/* (plan, number of the run, arena of weights, arena of outputs, the kernel's parameters...) -> seconds of one run.
 *
 * plan has a letter per parameter: c comes cold from the arena of weights, o from that of outputs, w is rewritten
 * by all threads just before, k is as it is. */
EXPORT(tune_run) {
  const int n = count - 4;
  DLTensor views[MOST_PARAMS];
  TVMFFIAny given[MOST_PARAMS], ignored;
  struct timespec began, ended;
  const char* plan = data(tensor(&args[0]));
  if (n > MOST_PARAMS) return answer_int(result, -1);
  pass(args + 4, n, views, given);
  memset(&ignored, 0, sizeof ignored);
  for (int i = 0; i < n; ++i) {
    if (plan[i] != 'w') continue;
    DLTensor rows = views[i];
    int64_t shape[2] = {(int64_t)(bytes_of(&views[i]) / LINE), LINE / 4}, strides[2] = {LINE / 4, 1};
    /* rows of a plane and lines of a row, as kernel_timing.py's planes_of */
    int64_t height = shape[0], lines = 1;
    if (rows.ndim == 5) {
      int64_t all = rows.shape[0] * rows.shape[1] * rows.shape[2];
      if (all > 0 && bytes_of(&views[i]) % (uint64_t)(all * LINE) == 0) height = rows.shape[2], lines = shape[0] / all;
    }
    TVMFFIAny taken[3] = {given[i], given[i], given[i]};
    rows.dtype.code = kDLInt; /* whatever they are: the producer flips a bit of every word */
    rows.dtype.bits = 32;
    rows.dtype.lanes = 1;
    rows.ndim = 2;
    rows.shape = shape;
    rows.strides = strides;
    taken[0].v_ptr = &rows;
    taken[1].type_index = taken[2].type_index = kTVMFFIInt;
    taken[1].v_int64 = height;
    taken[2].v_int64 = lines;
    if (tune_producer(NULL, taken, 3, &ignored) != 0) return -1;
  }
  cut(views, plan, n, 'c', tensor(&args[2]), args[1].v_int64);
  cut(views, plan, n, 'o', tensor(&args[3]), args[1].v_int64);
  clock_gettime(CLOCK_MONOTONIC, &began);
  if (tune_kernel(NULL, given, n, &ignored) != 0) return -1;
  clock_gettime(CLOCK_MONOTONIC, &ended);
  result->type_index = kTVMFFIFloat;
  result->zero_padding = 0;
  result->v_float64 = (double)(ended.tv_sec - began.tv_sec) + 1e-9 * (double)(ended.tv_nsec - began.tv_nsec);
  return 0;
}
#endif

}
