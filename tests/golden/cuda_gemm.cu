// Launch(kernel='main_kernel', arguments=('bias', 'relu', 'residual', 'w', 'x'), blocks=(4, 1, 1), threads=(512, 1, 1))
extern "C" __global__ void __launch_bounds__(512) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(512) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr) {
  #pragma unroll
  for (int64_t var = (int64_t)0; var < (int64_t)1; ++var) {
    alignas(64) float gemm_pad_local_ptr[1];
    gemm_pad_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    __shared__ alignas(64) float rows_pad_shared_ptr[1152];
    __shared__ alignas(64) float columns_pad_shared_ptr[2048];
    int cse_v1 = (((int)threadIdx.x) >> 8);
    int cse_v2 = (((int)threadIdx.x) & 31);
    int cse_v3 = (((int)threadIdx.x) >> 5);
    int cse_v4 = (((int)blockIdx.x) * 128);
    int cse_v5 = (((int)threadIdx.x) & 7);
    int cse_v9 = ((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 8));
    int cse_v11 = ((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5));
    int cse_v12 = ((((int)threadIdx.x) & 31) >> 3);
    int cse_v13 = ((((int)threadIdx.x) >> 5) * 8);
    int cse_v14 = ((((int)threadIdx.x) >> 5) * 36);
    int cse_v18 = (((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) / 7);
    int cse_v19 = (((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7);
    int cse_v10 = ((((int)threadIdx.x) & 31) / 24);
    int cse_v20 = (((((int)threadIdx.x) & 31) >> 3) % 3);
    int cse_v22 = (((((int)threadIdx.x) & 31) / 24) + (((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) / 7));
    int cse_v23 = ((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7) + (((((int)threadIdx.x) & 31) >> 3) % 3));
    __syncthreads();
    ptx_cp_async_legacy_pred_ca_4_4_4(rows_pad_shared_ptr, (((((int)threadIdx.x) >> 5) * 36) + (((int)threadIdx.x) & 31)), x_ptr, ((((((((int)blockIdx.x) * 128) + (((((int)threadIdx.x) & 31) / 24) * 56)) + ((((int)threadIdx.x) >> 5) * 8)) + ((((((int)threadIdx.x) & 31) >> 3) % 3) * 8)) + (((int)threadIdx.x) & 7)) - 64), (((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 8)) < 7) && (1 <= (((((int)threadIdx.x) & 31) / 24) + (((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) / 7)))) && ((((((int)threadIdx.x) & 31) / 24) + (((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) / 7)) < 9)) && (1 <= ((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7) + (((((int)threadIdx.x) & 31) >> 3) % 3)))) && (((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7) + (((((int)threadIdx.x) & 31) >> 3) % 3)) < 8)));
    #pragma unroll
    for (int ax1_ax2_ax3_fused_0 = 0; ax1_ax2_ax3_fused_0 < 2; ++ax1_ax2_ax3_fused_0) {
      int cse_v15 = ((ax1_ax2_ax3_fused_0 * 512) + ((int)threadIdx.x));
      ptx_cp_async_legacy_ca_4_4_4(columns_pad_shared_ptr, ((ax1_ax2_ax3_fused_0 * 512) + ((int)threadIdx.x)), w_ptr, ((ax1_ax2_ax3_fused_0 * 512) + ((int)threadIdx.x)));
    }
    tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
    #pragma unroll
    for (int k_0 = 0; k_0 < 2; ++k_0) {
      int cse_v7 = (k_0 * 1024);
      int cse_v6 = (k_0 * 4);
      int cse_v16 = ((k_0 + 1) & 1);
      int cse_v21 = ((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3));
      int cse_v24 = ((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) + 4) / 3);
      int cse_v25 = ((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) + 1) % 3);
      int cse_v26 = ((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7) + ((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) + 1) % 3));
      __syncthreads();
      ptx_cp_async_legacy_pred_ca_4_4_4(rows_pad_shared_ptr, (((((k_0 + 1) & 1) * 576) + ((((int)threadIdx.x) >> 5) * 36)) + (((int)threadIdx.x) & 31)), x_ptr, ((((((((int)blockIdx.x) * 128) + (((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) + 4) / 3) * 56)) + ((((int)threadIdx.x) >> 5) * 8)) + (((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) + 1) % 3) * 8)) + (((int)threadIdx.x) & 7)) - 64), (((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 8)) < 7) && (((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) < 5)) && (((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) / 7) + ((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) + 4) / 3)) < 9)) && (1 <= ((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7) + ((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) + 1) % 3)))) && (((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 5)) % 7) + ((((k_0 * 4) + ((((int)threadIdx.x) & 31) >> 3)) + 1) % 3)) < 8)));
      #pragma unroll
      for (int ax1_ax2_ax3_fused_0_1 = 0; ax1_ax2_ax3_fused_0_1 < 2; ++ax1_ax2_ax3_fused_0_1) {
        int cse_v8 = (ax1_ax2_ax3_fused_0_1 * 512);
        ptx_cp_async_legacy_pred_ca_4_4_4(columns_pad_shared_ptr, (((((k_0 + 1) & 1) * 1024) + (ax1_ax2_ax3_fused_0_1 * 512)) + ((int)threadIdx.x)), w_ptr, ((((k_0 * 1024) + (ax1_ax2_ax3_fused_0_1 * 512)) + ((int)threadIdx.x)) + 1024), ((((k_0 * 4) + (ax1_ax2_ax3_fused_0_1 * 2)) + (((int)threadIdx.x) >> 8)) < 5));
      }
      tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
      tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();
      __syncthreads();
      #pragma unroll
      for (int k_1 = 0; k_1 < 8; ++k_1) {
        alignas(64) float rows_pad_local_ptr[4];
        *(float4*)(rows_pad_local_ptr + 0) = *(float4*)(rows_pad_shared_ptr + (((k_0 * 576) + ((((int)threadIdx.x) >> 5) * 36)) + (k_1 * 4)));
        #pragma unroll
        for (int k_2 = 0; k_2 < 4; ++k_2) {
          alignas(64) float columns_pad_local_ptr[1];
          columns_pad_local_ptr[0] = columns_pad_shared_ptr[((((k_0 * 1024) + (k_1 * 128)) + (k_2 * 32)) + (((int)threadIdx.x) & 31))];
          gemm_pad_local_ptr[0] = (gemm_pad_local_ptr[0] + (rows_pad_local_ptr[k_2] * columns_pad_local_ptr[0]));
        }
      }
    }
    tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0();
    __syncthreads();
    #pragma unroll
    for (int k_1_1 = 0; k_1_1 < 8; ++k_1_1) {
      alignas(64) float rows_pad_local_ptr_1[4];
      *(float4*)(rows_pad_local_ptr_1 + 0) = *(float4*)(rows_pad_shared_ptr + (((((int)threadIdx.x) >> 5) * 36) + (k_1_1 * 4)));
      #pragma unroll
      for (int k_2_1 = 0; k_2_1 < 4; ++k_2_1) {
        alignas(64) float columns_pad_local_ptr_1[1];
        columns_pad_local_ptr_1[0] = columns_pad_shared_ptr[(((k_1_1 * 128) + (k_2_1 * 32)) + (((int)threadIdx.x) & 31))];
        gemm_pad_local_ptr[0] = (gemm_pad_local_ptr[0] + (rows_pad_local_ptr_1[k_2_1] * columns_pad_local_ptr_1[0]));
      }
    }
    if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 8)) < 7) {
      int cse_v17 = ((((int)blockIdx.x) * 512) + ((int)threadIdx.x));
      relu_ptr[((((int)blockIdx.x) * 512) + ((int)threadIdx.x))] = max(((gemm_pad_local_ptr[0] + bias_ptr[(((int)threadIdx.x) & 31)]) + residual_ptr[((((int)blockIdx.x) * 512) + ((int)threadIdx.x))]), 0x1p+1f/*2.000000e+00*/);
    }
  }
}
