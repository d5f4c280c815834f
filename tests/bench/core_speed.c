/* How fast the first two CPUs are when both compute: for every line read, the milliseconds that a fixed piece of work
 * took on the slower one, median of REPEATS. On a virtual machine it doubles while the host runs two virtual CPUs on one
 * core, of which the guest sees nothing else: no time is stolen. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CPUS = 2, REPEATS = 7, ROUNDS = 300000, SUMS = 16 };

typedef float Vector __attribute__((vector_size(64)));

static pthread_barrier_t both;
static double taken[CPUS][REPEATS];

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
    pthread_barrier_init(&both, NULL, CPUS);
    for (cpu = 0; cpu < CPUS; ++cpu) pthread_create(&threads[cpu], NULL, compute, (void*)cpu);
    for (cpu = 0; cpu < CPUS; ++cpu) {
      pthread_join(threads[cpu], NULL);
      qsort(taken[cpu], REPEATS, sizeof(double), by_size);
      if (taken[cpu][REPEATS / 2] > slower) slower = taken[cpu][REPEATS / 2];
    }
    pthread_barrier_destroy(&both);
    printf("%.4f\n", slower);
    fflush(stdout);
  }
  return 0;
}
