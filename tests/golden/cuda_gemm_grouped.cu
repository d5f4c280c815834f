// Launch(kernel='main_kernel', arguments=('bias', 'relu', 'residual', 'w', 'x'), blocks=(4, 1, 1), threads=(512, 1, 1))
extern "C" __global__ void __launch_bounds__(512) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(512) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr) {
  #pragma unroll
  for (int64_t var = (int64_t)0; var < (int64_t)1; ++var) {
    alignas(64) float gemm_pad_local_ptr[1];
    gemm_pad_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    __shared__ alignas(64) float rows_pad_shared_ptr[2304];
    __shared__ alignas(64) float columns_pad_shared_ptr[1024];
    int cse_v1 = (((int)threadIdx.x) >> 5);
    int cse_v2 = (((int)threadIdx.x) & 31);
    int cse_v3 = (((int)blockIdx.x) * 4);
    int cse_v4 = (((int)threadIdx.x) & 3);
    int cse_v5 = (((int)threadIdx.x) & 15);
    int cse_v6 = (((int)threadIdx.x) >> 4);
    int cse_v10 = ((((int)threadIdx.x) & 31) >> 2);
    int cse_v11 = ((((int)threadIdx.x) >> 5) * 16);
    int cse_v12 = ((((int)threadIdx.x) >> 5) * 36);
    int cse_v18 = (((((int)blockIdx.x) * 108) + ((((int)threadIdx.x) >> 4) * 3)) + (((int)threadIdx.x) & 15));
    __syncthreads();
    #pragma unroll
    for (int ax1_ax2_ax3_fused_0 = 0; ax1_ax2_ax3_fused_0 < 2; ++ax1_ax2_ax3_fused_0) {
      int cse_v8 = ((ax1_ax2_ax3_fused_0 * 16) + (((int)threadIdx.x) >> 5));
      int cse_v9 = ((((int)threadIdx.x) & 31) / 12);
      int cse_v15 = (((((int)threadIdx.x) & 31) >> 2) % 3);
      int cse_v16 = (((((int)threadIdx.x) & 31) / 12) + (((ax1_ax2_ax3_fused_0 * 16) + (((int)threadIdx.x) >> 5)) / 5));
      int cse_v17 = ((((ax1_ax2_ax3_fused_0 * 16) + (((int)threadIdx.x) >> 5)) % 5) + (((((int)threadIdx.x) & 31) >> 2) % 3));
      ptx_cp_async_legacy_pred_ca_4_4_4(rows_pad_shared_ptr, (((ax1_ax2_ax3_fused_0 * 576) + ((((int)threadIdx.x) >> 5) * 36)) + (((int)threadIdx.x) & 31)), x_ptr, (((((((ax1_ax2_ax3_fused_0 * 256) + (((((int)threadIdx.x) & 31) / 12) * 80)) + ((((int)threadIdx.x) >> 5) * 16)) + ((((((int)threadIdx.x) & 31) >> 2) % 3) * 16)) + (((int)blockIdx.x) * 4)) + (((int)threadIdx.x) & 3)) - 96), (((((((ax1_ax2_ax3_fused_0 * 16) + (((int)threadIdx.x) >> 5)) < 25) && (1 <= (((((int)threadIdx.x) & 31) / 12) + (((ax1_ax2_ax3_fused_0 * 16) + (((int)threadIdx.x) >> 5)) / 5)))) && ((((((int)threadIdx.x) & 31) / 12) + (((ax1_ax2_ax3_fused_0 * 16) + (((int)threadIdx.x) >> 5)) / 5)) < 6)) && (1 <= ((((ax1_ax2_ax3_fused_0 * 16) + (((int)threadIdx.x) >> 5)) % 5) + (((((int)threadIdx.x) & 31) >> 2) % 3)))) && (((((ax1_ax2_ax3_fused_0 * 16) + (((int)threadIdx.x) >> 5)) % 5) + (((((int)threadIdx.x) & 31) >> 2) % 3)) < 6)));
    }
    ptx_cp_async_legacy_pred_ca_4_4_4(columns_pad_shared_ptr, ((int)threadIdx.x), w_ptr, (((((int)blockIdx.x) * 108) + ((((int)threadIdx.x) >> 4) * 3)) + (((int)threadIdx.x) & 15)), ((((int)threadIdx.x) & 15) < 3));
    tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
    #pragma unroll
    for (int ax1_ax2_ax3_fused_0_1 = 0; ax1_ax2_ax3_fused_0_1 < 2; ++ax1_ax2_ax3_fused_0_1) {
      int cse_v13 = ((ax1_ax2_ax3_fused_0_1 * 16) + (((int)threadIdx.x) >> 5));
      int cse_v20 = ((((ax1_ax2_ax3_fused_0_1 * 16) + (((int)threadIdx.x) >> 5)) % 5) + ((((((int)threadIdx.x) & 31) >> 2) + 2) % 3));
      ptx_cp_async_legacy_pred_ca_4_4_4(rows_pad_shared_ptr, ((((ax1_ax2_ax3_fused_0_1 * 576) + ((((int)threadIdx.x) >> 5) * 36)) + (((int)threadIdx.x) & 31)) + 1152), x_ptr, (((((ax1_ax2_ax3_fused_0_1 * 256) + ((((int)threadIdx.x) >> 5) * 16)) + (((int)blockIdx.x) * 4)) + (((int)threadIdx.x) & 3)) + 96), (((((((ax1_ax2_ax3_fused_0_1 * 16) + (((int)threadIdx.x) >> 5)) < 25) && ((((int)threadIdx.x) & 31) < 4)) && (((((((int)threadIdx.x) & 31) + 32) / 12) + (((ax1_ax2_ax3_fused_0_1 * 16) + (((int)threadIdx.x) >> 5)) / 5)) < 6)) && (1 <= ((((ax1_ax2_ax3_fused_0_1 * 16) + (((int)threadIdx.x) >> 5)) % 5) + ((((((int)threadIdx.x) & 31) >> 2) + 2) % 3)))) && (((((ax1_ax2_ax3_fused_0_1 * 16) + (((int)threadIdx.x) >> 5)) % 5) + ((((((int)threadIdx.x) & 31) >> 2) + 2) % 3)) < 6)));
    }
    ptx_cp_async_legacy_pred_ca_4_4_4(columns_pad_shared_ptr, (((int)threadIdx.x) + 512), w_ptr, ((((((int)blockIdx.x) * 108) + ((((int)threadIdx.x) >> 4) * 3)) + (((int)threadIdx.x) & 15)) + 96), ((((int)threadIdx.x) < 51) && ((((int)threadIdx.x) & 15) < 3)));
    tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
    int cse_v14 = ((((int)threadIdx.x) >> 4) * 36);
    tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();
    __syncthreads();
    #pragma unroll
    for (int k_1 = 0; k_1 < 8; ++k_1) {
      alignas(64) float rows_pad_local_ptr[4];
      *(float4*)(rows_pad_local_ptr + 0) = *(float4*)(rows_pad_shared_ptr + (((((int)threadIdx.x) >> 4) * 36) + (k_1 * 4)));
      #pragma unroll
      for (int k_2 = 0; k_2 < 4; ++k_2) {
        alignas(64) float columns_pad_local_ptr[1];
        columns_pad_local_ptr[0] = columns_pad_shared_ptr[(((k_1 * 64) + (k_2 * 16)) + (((int)threadIdx.x) & 15))];
        gemm_pad_local_ptr[0] = (gemm_pad_local_ptr[0] + (rows_pad_local_ptr[k_2] * columns_pad_local_ptr[0]));
      }
    }
    tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0();
    __syncthreads();
    #pragma unroll
    for (int k_1_1 = 0; k_1_1 < 8; ++k_1_1) {
      alignas(64) float rows_pad_local_ptr_1[4];
      *(float4*)(rows_pad_local_ptr_1 + 0) = *(float4*)(rows_pad_shared_ptr + ((((((int)threadIdx.x) >> 4) * 36) + (k_1_1 * 4)) + 1152));
      #pragma unroll
      for (int k_2_1 = 0; k_2_1 < 4; ++k_2_1) {
        alignas(64) float columns_pad_local_ptr_1[1];
        columns_pad_local_ptr_1[0] = columns_pad_shared_ptr[((((k_1_1 * 64) + (k_2_1 * 16)) + (((int)threadIdx.x) & 15)) + 512)];
        gemm_pad_local_ptr[0] = (gemm_pad_local_ptr[0] + (rows_pad_local_ptr_1[k_2_1] * columns_pad_local_ptr_1[0]));
      }
    }
    if ((((int)threadIdx.x) < 387) && ((((int)threadIdx.x) & 15) < 3)) {
      int cse_v7 = (((int)blockIdx.x) * 3);
      int cse_v19 = ((((((int)threadIdx.x) >> 4) * 12) + (((int)blockIdx.x) * 3)) + (((int)threadIdx.x) & 15));
      relu_ptr[((((((int)threadIdx.x) >> 4) * 12) + (((int)blockIdx.x) * 3)) + (((int)threadIdx.x) & 15))] = max(((gemm_pad_local_ptr[0] + bias_ptr[((((int)blockIdx.x) * 3) + (((int)threadIdx.x) & 15))]) + residual_ptr[((((((int)threadIdx.x) >> 4) * 12) + (((int)blockIdx.x) * 3)) + (((int)threadIdx.x) & 15))]), 0x1p+1f/*2.000000e+00*/);
    }
  }
}
