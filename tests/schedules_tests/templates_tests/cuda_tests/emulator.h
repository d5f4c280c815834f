// Runs the CUDA source that TVM writes on a CPU: one block at a time, one fiber per thread.
//
// A fiber runs until it reaches a barrier; the next one runs then. So a missing __syncthreads shows: a thread gets far
// ahead of those whose data it reads. Shared memory is static and filled with NaN before every block, global memory is
// whatever the caller gives. An asynchronous copy is done when its thread waits for it, so that a missing wait shows as
// well. Warp shuffles meet at a barrier of their warp. WMMA fragments are whole in every thread.
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
struct Copy { char *to; const char *from; int size; };
struct Thread {
  ucontext_t context; State state; Index index; std::vector<char> stack;
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
};
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
  if (wanted) threads[current].open.push_back({(char *)to, (const char *)from, size});
  else memset(to, 0, size);
}
static void commit_group() {
  threads[current].groups.push_back(std::move(threads[current].open));
  threads[current].open.clear();
}
static void wait_group(size_t left) {
  auto &groups = threads[current].groups;
  while (groups.size() > left) {
    for (const Copy &each : groups.front()) memcpy(each.to, each.from, each.size);
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
    bool warps = false;
    for (int low = 0; low < count; low += 32) warps |= resume(AT_WARP, low, std::min(low + 32, count));
    if (!warps && !resume(AT_BLOCK, 0, count)) break;
  }
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

namespace nvcuda {
namespace wmma {
struct matrix_a; struct matrix_b; struct accumulator; struct row_major; struct col_major;
enum layout_t { mem_row_major, mem_col_major };
template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment { T x[256]; };
template <class F, class T> void load_matrix_sync(F &f, const T *p, unsigned stride) {
  for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) f.x[i * 16 + j] = p[i * stride + j];
}
template <class F, class T> void fill_fragment(F &f, T v) { for (auto &x : f.x) x = v; }
template <class D, class A, class B, class C> void mma_sync(D &d, const A &a, const B &b, const C &c) {
  for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) {
    float sum = c.x[i * 16 + j];
    for (int k = 0; k < 16; ++k) sum += (float)a.x[i * 16 + k] * (float)b.x[k * 16 + j];
    d.x[i * 16 + j] = sum;
  }
}
template <class F, class T> void store_matrix_sync(T *p, const F &f, unsigned stride, layout_t) {
  for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) p[i * stride + j] = f.x[i * 16 + j];
}
}  // namespace wmma
}  // namespace nvcuda
