/* Preloaded into the processes of a run: moves the time of day, and makes the disk slow.

   Both numbers lie in a file that TUNE_SOAK_SHIM names, and may change at any time. Clocks that only go forward are left
   alone, as an operator who sets the time leaves them alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct state {
  volatile int64_t offset_s; /* what is added to the time of day */
  volatile int64_t sync_us;  /* what writing through to the disk takes more */
};

static const struct state undisturbed;

static const struct state* state(void) {
  static const struct state* found;
  const char* path;
  if (found) return found;
  path = getenv("TUNE_SOAK_SHIM");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void* mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct state), PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  found = mapped == MAP_FAILED ? &undisturbed : mapped;
  return found;
}

int clock_gettime(clockid_t id, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(id, now);
  if (!code && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += state()->offset_s;
  return code;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  struct timespec precise;
  (void)zone;
  int code = clock_gettime(CLOCK_REALTIME, &precise);
  if (now) *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
  return code;
}

time_t time(time_t* out) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (out) *out = precise.tv_sec;
  return precise.tv_sec;
}

int fsync(int file) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  usleep((useconds_t)state()->sync_us);
  return real(file);
}

int fdatasync(int file) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  usleep((useconds_t)state()->sync_us);
  return real(file);
}
