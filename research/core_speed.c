/* How fast the first two CPUs are when both compute, and how far apart: for every line read, the milliseconds that a
 * fixed piece of work took on the slower one, median of REPEATS, and the nanoseconds that a cache line takes from one to
 * the other. On a virtual machine the former doubles and the latter falls while the host runs two virtual CPUs on one
 * core; the guest sees nothing else of it: no time is stolen. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef __AVX512F__
enum { BYTES = 64, SUMS = 16 };
#else /* vectors and sums that fit the 16 registers there are */
enum { BYTES = 32, SUMS = 12 };
#endif
enum { CPUS = 2, REPEATS = 7, ROUNDS = 300000, PASSES = 2000 };

typedef float Vector __attribute__((vector_size(BYTES)));

static pthread_barrier_t both;
static double taken[CPUS][REPEATS], pass_ns;
static _Alignas(64) atomic_int ball;

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

static float work(void) {
  Vector sums[SUMS] = {{0}}, factor = {0}, all = {0};
  int i, round;
  for (i = 0; i < SUMS; ++i) __asm__ volatile("" : "+v"(sums[i])); /* else the compiler sees that all are equal */
  for (round = 0; round < ROUNDS; ++round) {
#pragma GCC unroll 16
    for (i = 0; i < SUMS; ++i) sums[i] = sums[i] * factor + factor;
    __asm__ volatile("" : "+v"(factor));
  }
  for (i = 0; i < SUMS; ++i) all += sums[i];
  return all[0];
}

/* Each CPU waits for the ball and passes it on. */
static void pass(int cpu) {
  const double began = now_ms();
  int i;
  for (i = 0; i < PASSES; ++i) {
    while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * i + cpu) continue;
    atomic_store_explicit(&ball, 2 * i + cpu + 1, memory_order_release);
  }
  if (cpu == 0) pass_ns = (now_ms() - began) * 1e6 / (2 * PASSES);
}

static void* compute(void* number) {
  const long cpu = (long)number;
  volatile float kept;
  cpu_set_t one;
  int i;
  CPU_ZERO(&one);
  CPU_SET((int)cpu, &one);
  pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
  for (i = 0; i < REPEATS; ++i) {
    double began;
    pthread_barrier_wait(&both);
    began = now_ms();
    kept = work();
    taken[cpu][i] = now_ms() - began;
  }
  (void)kept;
  pthread_barrier_wait(&both);
  pass((int)cpu);
  return NULL;
}

static int by_size(const void* one, const void* other) {
  const double a = *(const double*)one, b = *(const double*)other;
  return (a > b) - (a < b);
}

int main(void) {
  char line[16];
  while (fgets(line, sizeof(line), stdin) != NULL) {
    pthread_t threads[CPUS];
    double slower = 0.0;
    long cpu;
    atomic_store(&ball, 0);
    pthread_barrier_init(&both, NULL, CPUS);
    for (cpu = 0; cpu < CPUS; ++cpu) pthread_create(&threads[cpu], NULL, compute, (void*)cpu);
    for (cpu = 0; cpu < CPUS; ++cpu) {
      pthread_join(threads[cpu], NULL);
      qsort(taken[cpu], REPEATS, sizeof(double), by_size);
      if (taken[cpu][REPEATS / 2] > slower) slower = taken[cpu][REPEATS / 2];
    }
    pthread_barrier_destroy(&both);
    printf("%.4f %.0f\n", slower, pass_ns);
    fflush(stdout);
  }
  return 0;
}
