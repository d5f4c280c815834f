// Launch(kernel='main_kernel', arguments=('added', 'bias', 'w', 'x'), blocks=(4, 1, 1), threads=(32, 1, 1))
static __forceinline__ __device__ void tune_multiply_f16_f16(float* c, int c_at, const unsigned* a, int a_at, const unsigned* b, int b_at) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(c[c_at + 0]), "+f"(c[c_at + 1]), "+f"(c[c_at + 2]), "+f"(c[c_at + 3]) : "r"(a[a_at + 0]), "r"(a[a_at + 1]), "r"(a[a_at + 2]), "r"(a[a_at + 3]), "r"(b[b_at + 0]), "r"(b[b_at + 1]));
}

template <class T> static __forceinline__ __device__ void tune_load(unsigned* r, int at, const T* tile, int row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[at + 0]), "=r"(r[at + 1]), "=r"(r[at + 2]), "=r"(r[at + 3]) : "r"((unsigned)__cvta_generic_to_shared(tile + row)) : "memory");
}

template <class T> static __forceinline__ __device__ void tune_load_transposed(unsigned* r, int at, const T* tile, int row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[at + 0]), "=r"(r[at + 1]), "=r"(r[at + 2]), "=r"(r[at + 3]) : "r"((unsigned)__cvta_generic_to_shared(tile + row)) : "memory");
}

static __forceinline__ __device__ void tune_wait_0() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

static __forceinline__ __device__ void tune_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <class T> static __forceinline__ __device__ void tune_copy_16(T* tile, int to, const void* from, int wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((unsigned)__cvta_generic_to_shared(tile + to)), "l"(from), "r"(wanted * 16) : "memory");
}
extern "C" __global__ void __launch_bounds__(32) main_kernel(half* __restrict__ added_ptr, half* __restrict__ bias_ptr, half* __restrict__ w_ptr, half* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(32) main_kernel(half* __restrict__ added_ptr, half* __restrict__ bias_ptr, half* __restrict__ w_ptr, half* __restrict__ x_ptr) {
  extern __shared__ __align__(128) half tiles_ptr[];
  alignas(64) float sums_ptr[8];
  #pragma unroll
  for (int i0 = 0; i0 < 8; ++i0) {
    sums_ptr[i0] = 0x0p+0f/*0.000000e+00*/;
  }
  int cse_v1 = (((int)threadIdx.x) >> 1);
  int cse_v2 = (((int)threadIdx.x) & 1);
  int cse_v3 = (((int)threadIdx.x) & 15);
  int cse_v4 = (((int)blockIdx.x) >> 1);
  int cse_v5 = (((int)threadIdx.x) >> 2);
  int cse_v8 = ((((int)blockIdx.x) >> 1) * 8);
  int cse_v12 = (((((int)threadIdx.x) >> 1) * 16) + (((((int)threadIdx.x) & 1) ^ ((((int)threadIdx.x) & 15) >> 3)) * 8));
  #pragma unroll
  for (int i0_1 = 0; i0_1 < 1; ++i0_1) {
    tune_copy_16(tiles_ptr, (((((int)threadIdx.x) >> 1) * 16) + (((((int)threadIdx.x) & 1) ^ ((((int)threadIdx.x) & 15) >> 3)) * 8)), (&(x_ptr[(((((int)blockIdx.x) >> 1) * 256) + (((int)threadIdx.x) * 8))])), ((int)((((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 2)) < 15)));
  }
  int cse_v6 = (((int)blockIdx.x) & 1);
  int cse_v9 = ((((int)blockIdx.x) & 1) * 16);
  int cse_v10 = ((((int)blockIdx.x) & 1) * 2);
  #pragma unroll
  for (int i0_2 = 0; i0_2 < 1; ++i0_2) {
    tune_copy_16(tiles_ptr, ((((((int)threadIdx.x) >> 1) * 16) + (((((int)threadIdx.x) & 1) ^ ((((int)threadIdx.x) & 15) >> 3)) * 8)) + 256), (&(w_ptr[((((((int)threadIdx.x) >> 1) * 24) + ((((int)blockIdx.x) & 1) * 16)) + ((((int)threadIdx.x) & 1) * 8))])), ((int)((((((int)blockIdx.x) & 1) * 2) + (((int)threadIdx.x) & 1)) < 3)));
  }
  tune_commit();
  tune_wait_0();
  __syncthreads();
  tune_commit();
  #pragma unroll
  for (int i0_3 = 0; i0_3 < 1; ++i0_3) {
    alignas(64) uint a_ptr[4];
    alignas(64) uint b_ptr[4];
    int cse_v13 = (((((int)threadIdx.x) & 15) * 16) + (((((int)threadIdx.x) >> 4) ^ ((((int)threadIdx.x) & 7) >> 2)) * 8));
    #pragma unroll
    for (int i0_4 = 0; i0_4 < 1; ++i0_4) {
      tune_load(a_ptr, 0, tiles_ptr, (((((int)threadIdx.x) & 15) * 16) + (((((int)threadIdx.x) >> 4) ^ ((((int)threadIdx.x) & 7) >> 2)) * 8)));
    }
    #pragma unroll
    for (int i0_5 = 0; i0_5 < 1; ++i0_5) {
      tune_load_transposed(b_ptr, 0, tiles_ptr, ((((((int)threadIdx.x) & 15) * 16) + (((((int)threadIdx.x) >> 4) ^ ((((int)threadIdx.x) & 7) >> 2)) * 8)) + 256));
    }
    #pragma unroll
    for (int i0_6 = 0; i0_6 < 1; ++i0_6) {
      #pragma unroll
      for (int i1 = 0; i1 < 2; ++i1) {
        tune_multiply_f16_f16(sums_ptr, (i1 * 4), a_ptr, 0, b_ptr, (i1 * 2));
      }
    }
  }
  #pragma unroll
  for (int i0_7 = 0; i0_7 < 1; ++i0_7) {
    #pragma unroll
    for (int i1_1 = 0; i1_1 < 2; ++i1_1) {
      #pragma unroll
      for (int i2 = 0; i2 < 2; ++i2) {
        if ((((((((int)blockIdx.x) >> 1) * 8) + (i2 * 4)) + (((int)threadIdx.x) >> 3)) < 15) && ((((((int)blockIdx.x) & 1) * 2) + i1_1) < 3)) {
          int cse_v7 = (i1_1 * 8);
          int cse_v11 = ((((int)threadIdx.x) & 3) * 2);
          half2 __1;
            half2 __2;
            float2 v_ = *(float2*)(sums_ptr + ((i1_1 * 4) + (i2 * 2)));
            __2.x = (half)(v_.x);
            __2.y = (half)(v_.y);
            half2 v__1 = *(half2*)(bias_ptr + ((((((int)blockIdx.x) & 1) * 16) + (i1_1 * 8)) + ((((int)threadIdx.x) & 3) * 2)));
            __1.x = (__2.x+v__1.x);
            __1.y = (__2.y+v__1.y);
          *(half2*)(added_ptr + (((((((((int)blockIdx.x) >> 1) * 384) + (i2 * 192)) + ((((int)threadIdx.x) >> 2) * 24)) + ((((int)blockIdx.x) & 1) * 16)) + (i1_1 * 8)) + ((((int)threadIdx.x) & 3) * 2))) = __1;
        }
      }
    }
  }
}
