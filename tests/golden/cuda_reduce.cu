// Launch(kernel='main_kernel', arguments=('active', 'bias', 'w', 'x'), blocks=(1, 1, 1), threads=(8, 32, 1))
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ active_ptr, float* __restrict__ bias_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ active_ptr, float* __restrict__ bias_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr) {
  alignas(64) float gemm_local_ptr[1];
  alignas(64) float in_thread_gemm_local_ptr[1];
  __shared__ alignas(64) float red_buf0_ptr[256];
  in_thread_gemm_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  if ((((int)threadIdx.x) < 6) && (((int)threadIdx.y) < 24)) {
    in_thread_gemm_local_ptr[0] = (in_thread_gemm_local_ptr[0] + (x_ptr[((int)threadIdx.y)] * w_ptr[((((int)threadIdx.y) * 6) + ((int)threadIdx.x))]));
  }
  __syncthreads();
  ((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] = in_thread_gemm_local_ptr[0];
  __syncthreads();
  if (((int)threadIdx.y) < 16) {
    ((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] = (((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] + ((volatile float*)red_buf0_ptr)[(((((int)threadIdx.x) * 32) + ((int)threadIdx.y)) + 16)]);
  }
  __syncthreads();
  if (((int)threadIdx.y) < 8) {
    ((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] = (((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] + ((volatile float*)red_buf0_ptr)[(((((int)threadIdx.x) * 32) + ((int)threadIdx.y)) + 8)]);
  }
  __syncthreads();
  if (((int)threadIdx.y) < 4) {
    ((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] = (((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] + ((volatile float*)red_buf0_ptr)[(((((int)threadIdx.x) * 32) + ((int)threadIdx.y)) + 4)]);
  }
  __syncthreads();
  if (((int)threadIdx.y) < 2) {
    ((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] = (((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] + ((volatile float*)red_buf0_ptr)[(((((int)threadIdx.x) * 32) + ((int)threadIdx.y)) + 2)]);
  }
  __syncthreads();
  if (((int)threadIdx.y) < 1) {
    ((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] = (((volatile float*)red_buf0_ptr)[((((int)threadIdx.x) * 32) + ((int)threadIdx.y))] + ((volatile float*)red_buf0_ptr)[(((((int)threadIdx.x) * 32) + ((int)threadIdx.y)) + 1)]);
  }
  __syncthreads();
  if (((int)threadIdx.x) < 6) {
    gemm_local_ptr[0] = ((volatile float*)red_buf0_ptr)[(((int)threadIdx.x) * 32)];
  }
  if ((((int)threadIdx.y) == 0) && (((int)threadIdx.x) < 6)) {
    active_ptr[((int)threadIdx.x)] = tanhf((gemm_local_ptr[0] + bias_ptr[((int)threadIdx.x)]));
  }
}
