// Runs the CUDA source that TVM writes on a CPU: one block at a time, one fiber per thread.
//
// A fiber runs until it reaches a barrier; the next one runs then, and a warp goes on alone until it waits for the
// block. So a missing __syncthreads shows: a thread gets far ahead of those whose data it reads. Shared memory is static
// and filled with NaN before every block, global memory is whatever the caller gives. An asynchronous copy is done when
// its thread waits for it, so that a missing wait shows as well. Warp shuffles, ldmatrix and mma.sync meet at a barrier
// of their warp and exchange registers there, by the layouts of the PTX ISA. Accesses to shared memory by inline assembly
// are checked for alignment, and the banks in which threads of a warp meet are counted.
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {
enum State { RUN, AT_BLOCK, AT_WARP, DONE };
enum Access { COPY, MATRIX, WORD, ACCESSES };
struct Copy { char *to; const char *from; int size; bool wanted; };
struct Thread {
  ucontext_t context; State state; Index index; std::vector<char> stack;
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
  size_t noted[ACCESSES];
};
alignas(128) static char origin;
struct Shared { std::vector<unsigned> addresses; int size; };
static std::vector<Shared> accesses[ACCESSES][32];  // of a block, by warp
static unsigned long long counted[ACCESSES], ways[ACCESSES];
static std::vector<Thread> threads;
static ucontext_t scheduler;
static int current;
static std::function<void()> body;
static unsigned long long exchange[1024];

static void enter() { body(); threads[current].state = DONE; swapcontext(&threads[current].context, &scheduler); }
static void wait(State state) {
  threads[current].state = state;
  swapcontext(&threads[current].context, &scheduler);
}
static bool resume(State from, int low, int high) {
  bool any = false;
  for (int i = low; i < high; ++i) if (threads[i].state == from) { threads[i].state = RUN; any = true; }
  return any;
}
static void copy_async(void *to, const void *from, int size, bool wanted) {
  threads[current].open.push_back({(char *)to, (const char *)from, size, wanted});
}
static void aligned(const void *p, int size) {
  if ((uintptr_t)p % size) { fprintf(stderr, "an access of %d bytes is not aligned\n", size); abort(); }
}
// Keeps the access of one thread with those of its warp: the n-th of every thread is one instruction.
static void note(Access kind, unsigned address, int size) {
  auto &found = accesses[kind][current / 32];
  size_t number = threads[current].noted[kind]++;
  if (found.size() <= number) found.resize(number + 1);
  found[number].addresses.push_back(address);
  found[number].size = size;
}
// Ways of the worst transaction: words that lie in one bank. A transaction has as many threads as make 128 bytes.
static int most_ways(const Shared &access) {
  size_t together = 128 / access.size;
  int most = 0;
  for (size_t low = 0; low < access.addresses.size(); low += together) {
    std::vector<std::vector<unsigned>> banks(32);
    for (size_t i = low; i < std::min(low + together, access.addresses.size()); ++i)
      for (int byte = 0; byte < access.size; byte += 4) {
        auto &bank = banks[(access.addresses[i] + byte) / 4 % 32];
        if (std::find(bank.begin(), bank.end(), access.addresses[i] + byte) == bank.end()) bank.push_back(access.addresses[i] + byte);
      }
    for (const auto &bank : banks) most = std::max(most, (int)bank.size());
  }
  return most;
}
static void count_ways() {
  for (int kind = 0; kind < ACCESSES; ++kind)
    for (auto &warp : accesses[kind]) {
      for (const Shared &access : warp) { ++counted[kind]; ways[kind] = std::max<unsigned long long>(ways[kind], most_ways(access)); }
      warp.clear();
    }
}
static void commit_group() {
  threads[current].groups.push_back(std::move(threads[current].open));
  threads[current].open.clear();
}
static void wait_group(size_t left) {
  auto &groups = threads[current].groups;
  while (groups.size() > left) {
    for (const Copy &each : groups.front())
      if (each.wanted) memcpy(each.to, each.from, each.size);
      else memset(each.to, 0, each.size);
    groups.erase(groups.begin());
  }
}
static void run_block(bool backwards) {
  int count = blockDim.x * blockDim.y * blockDim.z;
  if ((int)threads.size() < count) threads.resize(count);
  for (int i = 0; i < count; ++i) {
    Thread &t = threads[i];
    if (t.stack.empty()) t.stack.resize(1 << 16);
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = t.stack.data();
    t.context.uc_stack.ss_size = t.stack.size();
    t.context.uc_link = &scheduler;
    makecontext(&t.context, enter, 0);
    t.state = RUN;
    t.open.clear();
    t.groups.clear();
    std::fill(t.noted, t.noted + ACCESSES, 0);
    t.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
  }
  for (;;) {
    for (int j = 0; j < count; ++j) {
      int i = backwards ? count - 1 - j : j;
      if (threads[i].state != RUN) continue;
      current = i;
      threadIdx = threads[i].index;
      swapcontext(&scheduler, &threads[i].context);
    }
    // One warp goes on until it waits for the block: it is far ahead of the others then.
    bool warp = false;
    for (int j = 0; j < count && !warp; j += 32) {
      int low = backwards ? (count - 1) / 32 * 32 - j : j;
      warp = resume(AT_WARP, low, std::min(low + 32, count));
    }
    if (!warp && !resume(AT_BLOCK, 0, count)) break;
  }
  count_ways();
}
template <class T> T shuffle(T value, int from) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  int self = current, base = current / 32 * 32;
  memcpy(&exchange[self], &value, sizeof(T));
  wait(AT_WARP);
  T result;
  memcpy(&result, &exchange[base + from], sizeof(T));
  wait(AT_WARP);
  return result;
}
}  // namespace emulator

// Of every kind of access: how many a warp made, and the most ways of one.
extern "C" void bank_conflicts(unsigned long long *counts, unsigned long long *ways) {
  std::copy(emulator::counted, emulator::counted + emulator::ACCESSES, counts);
  std::copy(emulator::ways, emulator::ways + emulator::ACCESSES, ways);
}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __shared__ static
#define __restrict__
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
#define INFINITY_F __builtin_inff()
#define CUDART_INF_F __builtin_inff()

static inline void __syncthreads() { emulator::wait(emulator::AT_BLOCK); }
static inline void __syncwarp(unsigned = 0) { emulator::wait(emulator::AT_WARP); }
static inline unsigned __activemask() { return 0xffffffffu; }
template <class T> T __shfl_sync(unsigned, T v, int lane, int width = 32) {
  int own = emulator::current % 32;
  return emulator::shuffle(v, own / width * width + lane % width);
}
template <class T> T __shfl_down_sync(unsigned, T v, int delta, int width = 32) {
  int own = emulator::current % 32;
  return emulator::shuffle(v, own % width + delta < width ? own + delta : own);
}
template <class T> T __shfl_up_sync(unsigned, T v, int delta, int width = 32) {
  int own = emulator::current % 32;
  return emulator::shuffle(v, own % width - delta >= 0 ? own - delta : own);
}
template <class T> T __shfl_xor_sync(unsigned, T v, int mask, int width = 32) {
  int own = emulator::current % 32;
  int from = own ^ mask;
  return emulator::shuffle(v, from / width == own / width ? from : own);
}

template <class A, class B> typename std::common_type<A, B>::type max(A a, B b) { return a < b ? b : a; }
template <class A, class B> typename std::common_type<A, B>::type min(A a, B b) { return b < a ? b : a; }
#define __expf fast_expf
static inline float fast_expf(float x) { return expf(x); }
#define __logf fast_logf
static inline float fast_logf(float x) { return logf(x); }
#define __log2f fast_log2f
static inline float fast_log2f(float x) { return log2f(x); }
#define __log10f fast_log10f
static inline float fast_log10f(float x) { return log10f(x); }
#define __powf fast_powf
static inline float fast_powf(float x, float y) { return powf(x, y); }
#define __sinf fast_sinf
static inline float fast_sinf(float x) { return sinf(x); }
#define __cosf fast_cosf
static inline float fast_cosf(float x) { return cosf(x); }
#define __tanf fast_tanf
static inline float fast_tanf(float x) { return tanf(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
static inline int __float_as_int(float x) { int y; memcpy(&y, &x, 4); return y; }
template <class T> T __ldg(const T *p) { return *p; }

#define VECTORS(T, name)                                                   \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                       \
  struct name##3 { T x, y, z; };                                           \
  struct alignas(sizeof(T) * 4 > 16 ? 16 : sizeof(T) * 4) name##4 { T x, y, z, w; }; \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }        \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(unsigned int, uint)
VECTORS(short, short)
VECTORS(unsigned short, ushort)
VECTORS(signed char, char)
VECTORS(unsigned char, uchar)
VECTORS(long long, longlong)
struct uint1 { unsigned int x; };

// -- 16-bit floats ----------------------------------------------------------------------------------------------------

static inline uint32_t bits_of(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static inline float of_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

static uint16_t half_bits(float x) {
  uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
  if (rest > 0x7f800000) return sign | 0x7e00;
  if (rest >= 0x477ff000) return sign | 0x7c00;
  if (rest < 0x33000001) return sign;
  int shift = rest < 0x38800000 ? 126 - (rest >> 23) : 13;
  uint32_t mantissa = rest < 0x38800000 ? (rest & 0x7fffff) | 0x800000 : rest - 0x38000000;
  uint32_t kept = mantissa >> shift, lost = mantissa & ((1u << shift) - 1), tie = 1u << (shift - 1);
  return sign | (kept + (lost > tie || (lost == tie && (kept & 1))));
}
static float half_value(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
  if (exponent == 31) return of_bits(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  return (sign ? -1.0f : 1.0f) * mantissa * 5.9604644775390625e-8f;
}
struct half {
  uint16_t x;
  half() = default;
  template <class T, class = typename std::enable_if<std::is_arithmetic<T>::value>::type> half(T v) : x(half_bits((float)v)) {}
  operator float() const { return half_value(x); }
};
struct nv_bfloat16 {
  uint16_t x;
  nv_bfloat16() = default;
  template <class T, class = typename std::enable_if<std::is_arithmetic<T>::value>::type> nv_bfloat16(T v) {
    uint32_t u = bits_of((float)v);
    x = (u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
  }
  operator float() const { return of_bits((uint32_t)x << 16); }
};
struct alignas(8) half4 { half x, y, z, w; };
struct alignas(8) nv_bfloat164 { nv_bfloat16 x, y, z, w; };
typedef half __half;
typedef nv_bfloat16 __nv_bfloat16;
struct alignas(4) half2 { half x, y; };
struct alignas(4) nv_bfloat162 { nv_bfloat16 x, y; };
typedef half2 __half2;
typedef nv_bfloat162 __nv_bfloat162;
static inline half2 make_half2(half x, half y) { return {x, y}; }
static inline nv_bfloat164 make_nv_bfloat164(nv_bfloat16 x, nv_bfloat16 y, nv_bfloat16 z, nv_bfloat16 w) {
  return {x, y, z, w};
}
static inline nv_bfloat162 make_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
static inline half4 make_half4(half x, half y, half z, half w) { return {x, y, z, w}; }
static inline half __float2half_rn(float x) { return half(x); }
static inline float __half2float(half x) { return x; }
static inline nv_bfloat16 __float2bfloat16_rn(float x) { return nv_bfloat16(x); }
static inline half max(half a, half b) { return (float)a < (float)b ? b : a; }
static inline half min(half a, half b) { return (float)b < (float)a ? b : a; }
static inline unsigned __pack_half2(half x, half y) { return (unsigned)y.x << 16 | x.x; }
#define __pack_nv_bfloat162(a, b) ((unsigned)(b).x << 16 | (a).x)

// -- PTX: the instructions of inline assembly, named as there with _ for . ---------------------------------------------

static inline float __uint_as_float(unsigned x) { return of_bits(x); }
static inline unsigned __cvta_generic_to_shared(const void *p) { return (unsigned)((const char *)p - &emulator::origin); }

namespace ptx {
static inline char *address(unsigned shared) { return &emulator::origin + (int)shared; }
static void copied(unsigned to, const void *from, int size, int wanted) {
  emulator::aligned(address(to), size);
  if (wanted) emulator::aligned(from, size);
  emulator::note(emulator::COPY, to, size);
  emulator::threads[emulator::current].open.push_back({address(to), (const char *)from, size, wanted != 0});
}
static inline void cp_async_cg_shared_global(unsigned to, const void *from, int size, int wanted) { copied(to, from, size, wanted); }
static inline void cp_async_ca_shared_global(unsigned to, const void *from, int size, int wanted) { copied(to, from, size, wanted); }
static inline void cp_async_commit_group() { emulator::commit_group(); }
static inline void cp_async_wait_group(int left) { emulator::wait_group(left); }
static inline void ld_shared_b32(unsigned &r, unsigned from) {
  emulator::aligned(address(from), 4);
  emulator::note(emulator::WORD, from, 4);
  memcpy(&r, address(from), 4);
}
static inline void cvt_rna_tf32_f32(unsigned &r, float x) {
  uint32_t u = bits_of(x);
  r = (u & 0x7f800000) == 0x7f800000 ? u : (u + 0x1000) & 0xffffe000;
}

static unsigned rows[1024], fragments[1024][6];
template <bool TRANSPOSED> void load_matrices(unsigned *r, unsigned row) {
  int self = emulator::current, base = self / 32 * 32, g = self % 32 / 4, t = self % 4;
  emulator::aligned(address(row), 16);
  emulator::note(emulator::MATRIX, row, 16);
  rows[self] = row;
  emulator::wait(emulator::AT_WARP);
  for (int i = 0; i < 4; ++i)
    for (int half = 0; half < 2; ++half) {
      const char *from = TRANSPOSED ? address(rows[base + 8 * i + 2 * t + half]) + 2 * g
                                    : address(rows[base + 8 * i + g]) + 4 * t + 2 * half;
      memcpy((char *)(r + i) + 2 * half, from, 2);
    }
  emulator::wait(emulator::AT_WARP);
}
#define LDMATRIX(name, transposed)                                                                             \
  static inline void name(unsigned &a, unsigned &b, unsigned &c, unsigned &d, unsigned row) {                    \
    unsigned r[4];                                                                                             \
    load_matrices<transposed>(r, row);                                                                         \
    a = r[0], b = r[1], c = r[2], d = r[3];                                                                    \
  }
LDMATRIX(ldmatrix_sync_aligned_m8n8_x4_shared_b16, false)
LDMATRIX(ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16, true)

struct tf32 { uint32_t x; operator float() const { return of_bits(x & 0xffffe000); } };

// Element ``at`` along k of the registers that lane ``line`` * 4 + … hold; a register has 4 / sizeof(T) of them.
template <class T> T element(int base, int first, int step, int line, int at) {
  int each = 4 / sizeof(T), half = 4 * each;
  const unsigned &held = fragments[base + line * 4 + at % half / each][first + (at >= half ? step : 0)];
  T value;
  memcpy(&value, (const char *)&held + at % each * sizeof(T), sizeof(T));
  return value;
}
template <class A, class B, class C> void multiply(C *d, const unsigned *a, const unsigned *b, const C *c) {
  int self = emulator::current, base = self / 32 * 32, g = self % 32 / 4, t = self % 4;
  for (int i = 0; i < 4; ++i) fragments[self][i] = a[i];
  for (int i = 0; i < 2; ++i) fragments[self][4 + i] = b[i];
  emulator::wait(emulator::AT_WARP);
  for (int i = 0; i < 4; ++i) {
    C sum = c[i];
    for (int k = 0; k < 32 / (int)sizeof(A); ++k)
      sum += (C)element<A>(base, i / 2, 2, g, k) * (C)element<B>(base, 4, 1, 2 * t + i % 2, k);
    d[i] = sum;
  }
  emulator::wait(emulator::AT_WARP);
}
#define MMA(depth, C, c, A, a, B, b)                                                                            \
  static inline void mma_sync_aligned_m16n8k##depth##_row_col_##c##_##a##_##b##_##c(                              \
      C &d0, C &d1, C &d2, C &d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1,   \
      C c0, C c1, C c2, C c3) {                                                                                 \
    unsigned as[4] = {a0, a1, a2, a3}, bs[2] = {b0, b1};                                                        \
    C cs[4] = {c0, c1, c2, c3}, ds[4];                                                                          \
    multiply<A, B, C>(ds, as, bs, cs);                                                                          \
    d0 = ds[0], d1 = ds[1], d2 = ds[2], d3 = ds[3];                                                             \
  }
MMA(16, float, f32, half, f16, half, f16)
MMA(16, float, f32, nv_bfloat16, bf16, nv_bfloat16, bf16)
MMA(8, float, f32, tf32, tf32, tf32, tf32)
MMA(32, int, s32, int8_t, s8, int8_t, s8)
MMA(32, int, s32, uint8_t, u8, int8_t, s8)
MMA(32, int, s32, int8_t, s8, uint8_t, u8)
MMA(32, int, s32, uint8_t, u8, uint8_t, u8)
}  // namespace ptx
