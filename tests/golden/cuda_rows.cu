// Launch(kernel='main_kernel', arguments=('T_softmax_norm', 'x0'), blocks=(4, 1, 1), threads=(64, 4, 1))
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ T_softmax_norm_ptr, float* __restrict__ x0_ptr);
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ T_softmax_norm_ptr, float* __restrict__ x0_ptr) {
  alignas(64) float T_softmax_maxelem_local_ptr[1];
  alignas(64) float T_softmax_expsum_local_ptr[1];
  alignas(64) float in_thread_T_softmax_maxelem_local_ptr[1];
  __shared__ alignas(64) float red_result_ptr[4];
  in_thread_T_softmax_maxelem_local_ptr[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
  int cse_v1 = ((((int)blockIdx.x) * 4) + ((int)threadIdx.y));
  int cse_v2 = (((((int)blockIdx.x) * 192) + (((int)threadIdx.y) * 48)) + ((int)threadIdx.x));
  if ((((((int)blockIdx.x) * 4) + ((int)threadIdx.y)) < 15) && (((int)threadIdx.x) < 48)) {
    in_thread_T_softmax_maxelem_local_ptr[0] = max(in_thread_T_softmax_maxelem_local_ptr[0], x0_ptr[(((((int)blockIdx.x) * 192) + (((int)threadIdx.y) * 48)) + ((int)threadIdx.x))]);
  }
  __shared__ alignas(64) float red_buf_staging_ptr[8];
  alignas(64) float t0_ptr[1];
  alignas(64) uint mask_ptr[1];
  alignas(64) float red_buf0_ptr[1];
  alignas(64) float t0_ptr_1[1];
  alignas(64) uint mask_ptr_1[1];
  alignas(64) float red_buf0_ptr_1[1];
  red_buf0_ptr[0] = in_thread_T_softmax_maxelem_local_ptr[0];
  mask_ptr[0] = __activemask();
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 16, 32);
  red_buf0_ptr[0] = max(red_buf0_ptr[0], t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 8, 32);
  red_buf0_ptr[0] = max(red_buf0_ptr[0], t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 4, 32);
  red_buf0_ptr[0] = max(red_buf0_ptr[0], t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 2, 32);
  red_buf0_ptr[0] = max(red_buf0_ptr[0], t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 1, 32);
  red_buf0_ptr[0] = max(red_buf0_ptr[0], t0_ptr[0]);
  if ((((int)threadIdx.x) % 32) == 0) {
    red_buf_staging_ptr[((((int)threadIdx.y) * 2) + (((int)threadIdx.x) >> 5))] = red_buf0_ptr[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 2) {
    red_buf0_ptr_1[0] = red_buf_staging_ptr[((((int)threadIdx.y) * 2) + ((int)threadIdx.x))];
  }
  mask_ptr_1[0] = __activemask();
  t0_ptr_1[0] = __shfl_down_sync(mask_ptr_1[0], red_buf0_ptr_1[0], 1, 32);
  red_buf0_ptr_1[0] = max(red_buf0_ptr_1[0], t0_ptr_1[0]);
  if (((int)threadIdx.x) == 0) {
    ((volatile float*)red_result_ptr)[((int)threadIdx.y)] = red_buf0_ptr_1[0];
  }
  __syncthreads();
  if (((((int)blockIdx.x) * 4) + ((int)threadIdx.y)) < 15) {
    T_softmax_maxelem_local_ptr[0] = ((volatile float*)red_result_ptr)[((int)threadIdx.y)];
  }
  alignas(64) float in_thread_T_softmax_expsum_local_ptr[1];
  __shared__ alignas(64) float red_result_ptr_1[4];
  in_thread_T_softmax_expsum_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  if ((((((int)blockIdx.x) * 4) + ((int)threadIdx.y)) < 15) && (((int)threadIdx.x) < 48)) {
    in_thread_T_softmax_expsum_local_ptr[0] = (in_thread_T_softmax_expsum_local_ptr[0] + expf((x0_ptr[(((((int)blockIdx.x) * 192) + (((int)threadIdx.y) * 48)) + ((int)threadIdx.x))] - T_softmax_maxelem_local_ptr[0])));
  }
  __shared__ alignas(64) float red_buf_staging_ptr_1[8];
  alignas(64) float t0_ptr_2[1];
  alignas(64) uint mask_ptr_2[1];
  alignas(64) float red_buf0_ptr_2[1];
  alignas(64) float t0_ptr_3[1];
  alignas(64) uint mask_ptr_3[1];
  alignas(64) float red_buf0_ptr_3[1];
  red_buf0_ptr_2[0] = in_thread_T_softmax_expsum_local_ptr[0];
  mask_ptr_2[0] = __activemask();
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 16, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 8, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 4, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 2, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  t0_ptr_2[0] = __shfl_down_sync(mask_ptr_2[0], red_buf0_ptr_2[0], 1, 32);
  red_buf0_ptr_2[0] = (red_buf0_ptr_2[0] + t0_ptr_2[0]);
  if ((((int)threadIdx.x) % 32) == 0) {
    red_buf_staging_ptr_1[((((int)threadIdx.y) * 2) + (((int)threadIdx.x) >> 5))] = red_buf0_ptr_2[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 2) {
    red_buf0_ptr_3[0] = red_buf_staging_ptr_1[((((int)threadIdx.y) * 2) + ((int)threadIdx.x))];
  }
  mask_ptr_3[0] = __activemask();
  t0_ptr_3[0] = __shfl_down_sync(mask_ptr_3[0], red_buf0_ptr_3[0], 1, 32);
  red_buf0_ptr_3[0] = (red_buf0_ptr_3[0] + t0_ptr_3[0]);
  if (((int)threadIdx.x) == 0) {
    ((volatile float*)red_result_ptr_1)[((int)threadIdx.y)] = red_buf0_ptr_3[0];
  }
  __syncthreads();
  if (((((int)blockIdx.x) * 4) + ((int)threadIdx.y)) < 15) {
    T_softmax_expsum_local_ptr[0] = ((volatile float*)red_result_ptr_1)[((int)threadIdx.y)];
  }
  if ((((((int)blockIdx.x) * 4) + ((int)threadIdx.y)) < 15) && (((int)threadIdx.x) < 48)) {
    T_softmax_norm_ptr[(((((int)blockIdx.x) * 192) + (((int)threadIdx.y) * 48)) + ((int)threadIdx.x))] = (expf((x0_ptr[(((((int)blockIdx.x) * 192) + (((int)threadIdx.y) * 48)) + ((int)threadIdx.x))] - T_softmax_maxelem_local_ptr[0])) / T_softmax_expsum_local_ptr[0]);
  }
}
