// Launch(kernel='main_kernel', arguments=('bias', 'relu', 'residual', 'w', 'x'), blocks=(4, 1, 1), threads=(512, 1, 1))
extern "C" __global__ void __launch_bounds__(512) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(512) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr) {
  alignas(64) float gemm_pad_local_ptr[1];
  __shared__ alignas(64) float rows_pad_shared_ptr[576];
  __shared__ alignas(64) float columns_pad_shared_ptr[1024];
  alignas(64) float rows_pad_local_ptr[4];
  alignas(64) float columns_pad_local_ptr[1];
  #pragma unroll
  for (int64_t var = (int64_t)0; var < (int64_t)1; ++var) {
    gemm_pad_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    int cse_v1 = (((int)threadIdx.x) >> 8);
    int cse_v3 = (((int)threadIdx.x) & 31);
    int cse_v6 = ((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 8));
    #pragma unroll
    for (int k_0 = 0; k_0 < 3; ++k_0) {
      int cse_v2 = (k_0 * 4);
      int cse_v4 = (((int)threadIdx.x) >> 5);
      int cse_v7 = ((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5));
      int cse_v8 = ((((int)threadIdx.x) >> 5) * 36);
      int cse_v10 = ((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3));
      int cse_v11 = (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) / 3);
      int cse_v12 = (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) % 3);
      int cse_v13 = ((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) / 7) + (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) / 3));
      int cse_v14 = ((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7) + (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) % 3));
      __syncthreads();
      float condval;
      if ((((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 8)) < 7) && (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) < 9)) && (1 <= ((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) / 7) + (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) / 3)))) && (((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) / 7) + (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) / 3)) < 9)) && (1 <= ((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7) + (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) % 3)))) && (((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7) + (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) % 3)) < 8)) {
        condval = x_ptr[((((((((int)blockIdx.x) * 128) + ((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) / 3) * 56)) + ((((int)threadIdx.x) >> 5) * 8)) + ((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) % 3) * 8)) + (((int)threadIdx.x) & 7)) - 64)];
      } else {
        condval = 0x0p+0f/*0.000000e+00*/;
      }
      rows_pad_shared_ptr[(((((int)threadIdx.x) >> 5) * 36) + (((int)threadIdx.x) & 31))] = condval;
      #pragma unroll
      for (int ax1_ax2_fused_0 = 0; ax1_ax2_fused_0 < 2; ++ax1_ax2_fused_0) {
        int cse_v5 = (ax1_ax2_fused_0 * 512);
        float condval_1;
        if ((((k_0 * 4) + (ax1_ax2_fused_0 * 2)) + (((int)threadIdx.x) >> 8)) < 9) {
          condval_1 = w_ptr[(((k_0 * 1024) + (ax1_ax2_fused_0 * 512)) + ((int)threadIdx.x))];
        } else {
          condval_1 = 0x0p+0f/*0.000000e+00*/;
        }
        columns_pad_shared_ptr[((ax1_ax2_fused_0 * 512) + ((int)threadIdx.x))] = condval_1;
      }
      __syncthreads();
      #pragma unroll
      for (int k_1 = 0; k_1 < 8; ++k_1) {
        *(float4*)(rows_pad_local_ptr + 0) = *(float4*)(rows_pad_shared_ptr + (((((int)threadIdx.x) >> 5) * 36) + (k_1 * 4)));
        #pragma unroll
        for (int k_2 = 0; k_2 < 4; ++k_2) {
          columns_pad_local_ptr[0] = columns_pad_shared_ptr[(((k_1 * 128) + (k_2 * 32)) + (((int)threadIdx.x) & 31))];
          gemm_pad_local_ptr[0] = (gemm_pad_local_ptr[0] + (rows_pad_local_ptr[k_2] * columns_pad_local_ptr[0]));
        }
      }
    }
    if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 8)) < 7) {
      int cse_v9 = ((((int)blockIdx.x) * 512) + ((int)threadIdx.x));
      relu_ptr[((((int)blockIdx.x) * 512) + ((int)threadIdx.x))] = max(((gemm_pad_local_ptr[0] + bias_ptr[(((int)threadIdx.x) & 31)]) + residual_ptr[((((int)blockIdx.x) * 512) + ((int)threadIdx.x))]), 0x1p+1f/*2.000000e+00*/);
    }
  }
}
