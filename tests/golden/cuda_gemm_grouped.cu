// Launch(kernel='main_kernel', arguments=('bias', 'relu', 'residual', 'w', 'x'), blocks=(4, 1, 1), threads=(512, 1, 1))
extern "C" __global__ void __launch_bounds__(512) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(512) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr) {
  alignas(64) float gemm_pad_local_ptr[1];
  __shared__ alignas(64) float rows_pad_shared_ptr[1152];
  __shared__ alignas(64) float columns_pad_shared_ptr[512];
  alignas(64) float rows_pad_local_ptr[4];
  alignas(64) float columns_pad_local_ptr[1];
  #pragma unroll
  for (int64_t var = (int64_t)0; var < (int64_t)1; ++var) {
    gemm_pad_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    int cse_v4 = (((int)threadIdx.x) & 15);
    int cse_v5 = (((int)threadIdx.x) >> 4);
    #pragma unroll
    for (int k_0 = 0; k_0 < 2; ++k_0) {
      int cse_v2 = (k_0 * 8);
      __syncthreads();
      #pragma unroll
      for (int ax1_ax2_fused_0 = 0; ax1_ax2_fused_0 < 2; ++ax1_ax2_fused_0) {
        int cse_v1 = (((int)threadIdx.x) >> 5);
        int cse_v3 = (((int)threadIdx.x) & 31);
        int cse_v7 = ((ax1_ax2_fused_0 * 16) + (((int)threadIdx.x) >> 5));
        int cse_v8 = ((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2));
        int cse_v9 = (((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) / 3);
        int cse_v10 = (((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) % 3);
        int cse_v12 = ((((ax1_ax2_fused_0 * 16) + (((int)threadIdx.x) >> 5)) / 5) + (((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) / 3));
        int cse_v13 = ((((ax1_ax2_fused_0 * 16) + (((int)threadIdx.x) >> 5)) % 5) + (((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) % 3));
        float condval;
        if ((((((((ax1_ax2_fused_0 * 16) + (((int)threadIdx.x) >> 5)) < 25) && (((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) < 9)) && (1 <= ((((ax1_ax2_fused_0 * 16) + (((int)threadIdx.x) >> 5)) / 5) + (((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) / 3)))) && (((((ax1_ax2_fused_0 * 16) + (((int)threadIdx.x) >> 5)) / 5) + (((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) / 3)) < 6)) && (1 <= ((((ax1_ax2_fused_0 * 16) + (((int)threadIdx.x) >> 5)) % 5) + (((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) % 3)))) && (((((ax1_ax2_fused_0 * 16) + (((int)threadIdx.x) >> 5)) % 5) + (((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) % 3)) < 6)) {
          condval = x_ptr[(((((((ax1_ax2_fused_0 * 256) + ((((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) / 3) * 80)) + ((((int)threadIdx.x) >> 5) * 16)) + ((((k_0 * 8) + ((((int)threadIdx.x) & 31) >> 2)) % 3) * 16)) + (((int)blockIdx.x) * 4)) + (((int)threadIdx.x) & 3)) - 96)];
        } else {
          condval = 0x0p+0f/*0.000000e+00*/;
        }
        rows_pad_shared_ptr[(((ax1_ax2_fused_0 * 576) + ((((int)threadIdx.x) >> 5) * 36)) + (((int)threadIdx.x) & 31))] = condval;
      }
      float condval_1;
      if ((((k_0 * 8) + (((int)threadIdx.x) >> 6)) < 9) && ((((int)threadIdx.x) & 15) < 3)) {
        condval_1 = w_ptr[((((((int)blockIdx.x) * 108) + (k_0 * 96)) + ((((int)threadIdx.x) >> 4) * 3)) + (((int)threadIdx.x) & 15))];
      } else {
        condval_1 = 0x0p+0f/*0.000000e+00*/;
      }
      columns_pad_shared_ptr[((int)threadIdx.x)] = condval_1;
      __syncthreads();
      #pragma unroll
      for (int k_1 = 0; k_1 < 8; ++k_1) {
        *(float4*)(rows_pad_local_ptr + 0) = *(float4*)(rows_pad_shared_ptr + (((((int)threadIdx.x) >> 4) * 36) + (k_1 * 4)));
        #pragma unroll
        for (int k_2 = 0; k_2 < 4; ++k_2) {
          columns_pad_local_ptr[0] = columns_pad_shared_ptr[(((k_1 * 64) + (k_2 * 16)) + (((int)threadIdx.x) & 15))];
          gemm_pad_local_ptr[0] = (gemm_pad_local_ptr[0] + (rows_pad_local_ptr[k_2] * columns_pad_local_ptr[0]));
        }
      }
    }
    if ((((int)threadIdx.x) < 387) && ((((int)threadIdx.x) & 15) < 3)) {
      int cse_v6 = (((int)blockIdx.x) * 3);
      int cse_v11 = ((((((int)threadIdx.x) >> 4) * 12) + (((int)blockIdx.x) * 3)) + (((int)threadIdx.x) & 15));
      relu_ptr[((((((int)threadIdx.x) >> 4) * 12) + (((int)blockIdx.x) * 3)) + (((int)threadIdx.x) & 15))] = max(((gemm_pad_local_ptr[0] + bias_ptr[((((int)blockIdx.x) * 3) + (((int)threadIdx.x) & 15))]) + residual_ptr[((((((int)threadIdx.x) >> 4) * 12) + (((int)blockIdx.x) * 3)) + (((int)threadIdx.x) & 15))]), 0x1p+1f/*2.000000e+00*/);
    }
  }
}
