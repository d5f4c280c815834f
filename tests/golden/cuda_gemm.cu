// Launch(kernel='main_kernel', arguments=('bias', 'relu', 'residual', 'w', 'x'), blocks=(14, 1, 1), threads=(128, 1, 1))
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr) {
  #pragma unroll
  for (int64_t var = (int64_t)0; var < (int64_t)1; ++var) {
    alignas(64) float gemm_local_ptr[1];
    gemm_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    __shared__ alignas(64) float rows_pad_shared_ptr[320];
    __shared__ alignas(64) float columns_pad_shared_ptr[512];
    int cse_v1 = (((int)blockIdx.x) >> 1);
    int cse_v2 = (((int)threadIdx.x) >> 4);
    int cse_v3 = (((int)threadIdx.x) & 15);
    int cse_v6 = ((((int)threadIdx.x) & 15) >> 3);
    int cse_v7 = ((((int)blockIdx.x) >> 1) * 64);
    int cse_v8 = ((((int)threadIdx.x) >> 4) * 8);
    int cse_v9 = ((((int)threadIdx.x) >> 4) * 20);
    int cse_v10 = ((((int)threadIdx.x) >> 4) * 32);
    int cse_v11 = ((((int)blockIdx.x) & 1) * 16);
    int cse_v13 = (((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4));
    int cse_v15 = ((((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4)) % 7);
    __syncthreads();
    ptx_cp_async_legacy_pred_ca_4_4_4(rows_pad_shared_ptr, (((((int)threadIdx.x) >> 4) * 20) + (((int)threadIdx.x) & 15)), x_ptr, (((((((int)blockIdx.x) >> 1) * 64) + ((((int)threadIdx.x) >> 4) * 8)) + (((int)threadIdx.x) & 15)) - 64), ((7 <= (((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4))) && (1 <= (((((int)threadIdx.x) & 15) >> 3) + ((((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4)) % 7)))));
    #pragma unroll
    for (int ax1_ax2_ax3_fused_0 = 0; ax1_ax2_ax3_fused_0 < 2; ++ax1_ax2_ax3_fused_0) {
      ptx_cp_async_legacy_ca_4_4_4(columns_pad_shared_ptr, ((ax1_ax2_ax3_fused_0 * 128) + ((int)threadIdx.x)), w_ptr, ((((ax1_ax2_ax3_fused_0 * 256) + ((((int)threadIdx.x) >> 4) * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) & 15)));
    }
    tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
    #pragma unroll
    for (int k_0 = 0; k_0 < 4; ++k_0) {
      int cse_v4 = (k_0 * 2);
      int cse_v12 = ((k_0 + 1) & 1);
      int cse_v14 = ((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3));
      int cse_v16 = (((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2);
      int cse_v17 = ((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) / 3);
      int cse_v18 = ((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) % 3);
      int cse_v20 = (((((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4)) / 7) + ((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) / 3));
      int cse_v21 = (((((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4)) % 7) + ((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) % 3));
      __syncthreads();
      ptx_cp_async_legacy_pred_ca_4_4_4(rows_pad_shared_ptr, (((((k_0 + 1) & 1) * 160) + ((((int)threadIdx.x) >> 4) * 20)) + (((int)threadIdx.x) & 15)), x_ptr, (((((((((int)blockIdx.x) >> 1) * 64) + (((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) / 3) * 56)) + ((((int)threadIdx.x) >> 4) * 8)) + (((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) % 3) * 8)) + (((int)threadIdx.x) & 7)) - 64), (((((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) < 7) && (1 <= (((((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4)) / 7) + ((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) / 3)))) && ((((((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4)) / 7) + ((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) / 3)) < 9)) && (1 <= (((((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4)) % 7) + ((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) % 3)))) && ((((((((int)blockIdx.x) >> 1) * 8) + (((int)threadIdx.x) >> 4)) % 7) + ((((k_0 * 2) + ((((int)threadIdx.x) & 15) >> 3)) + 2) % 3)) < 8)));
      #pragma unroll
      for (int ax1_ax2_ax3_fused_0_1 = 0; ax1_ax2_ax3_fused_0_1 < 2; ++ax1_ax2_ax3_fused_0_1) {
        ptx_cp_async_legacy_pred_ca_4_4_4(columns_pad_shared_ptr, (((((k_0 + 1) & 1) * 256) + (ax1_ax2_ax3_fused_0_1 * 128)) + ((int)threadIdx.x)), w_ptr, ((((((k_0 * 512) + (ax1_ax2_ax3_fused_0_1 * 256)) + ((((int)threadIdx.x) >> 4) * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) & 15)) + 512), (((k_0 * 2) + ax1_ax2_ax3_fused_0_1) < 7));
      }
      tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
      tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();
      __syncthreads();
      #pragma unroll
      for (int k_1 = 0; k_1 < 4; ++k_1) {
        alignas(64) float rows_pad_local_ptr[4];
        int cse_v5 = (k_0 & 1);
        *(float4*)(rows_pad_local_ptr + 0) = *(float4*)(rows_pad_shared_ptr + ((((k_0 & 1) * 160) + ((((int)threadIdx.x) >> 4) * 20)) + (k_1 * 4)));
        #pragma unroll
        for (int k_2 = 0; k_2 < 4; ++k_2) {
          alignas(64) float columns_pad_local_ptr[1];
          columns_pad_local_ptr[0] = columns_pad_shared_ptr[(((((k_0 & 1) * 256) + (k_1 * 64)) + (k_2 * 16)) + (((int)threadIdx.x) & 15))];
          gemm_local_ptr[0] = (gemm_local_ptr[0] + (rows_pad_local_ptr[k_2] * columns_pad_local_ptr[0]));
        }
      }
    }
    tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0();
    __syncthreads();
    #pragma unroll
    for (int k_1_1 = 0; k_1_1 < 4; ++k_1_1) {
      alignas(64) float rows_pad_local_ptr_1[4];
      *(float4*)(rows_pad_local_ptr_1 + 0) = *(float4*)(rows_pad_shared_ptr + (((((int)threadIdx.x) >> 4) * 20) + (k_1_1 * 4)));
      #pragma unroll
      for (int k_2_1 = 0; k_2_1 < 4; ++k_2_1) {
        alignas(64) float columns_pad_local_ptr_1[1];
        columns_pad_local_ptr_1[0] = columns_pad_shared_ptr[(((k_1_1 * 64) + (k_2_1 * 16)) + (((int)threadIdx.x) & 15))];
        gemm_local_ptr[0] = (gemm_local_ptr[0] + (rows_pad_local_ptr_1[k_2_1] * columns_pad_local_ptr_1[0]));
      }
    }
    int cse_v19 = (((((((int)blockIdx.x) >> 1) * 256) + ((((int)threadIdx.x) >> 4) * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) & 15));
    float v = ((gemm_local_ptr[0] + bias_ptr[(((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) & 15))]) + residual_ptr[(((((((int)blockIdx.x) >> 1) * 256) + ((((int)threadIdx.x) >> 4) * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) & 15))]);
    relu_ptr[(((((((int)blockIdx.x) >> 1) * 256) + ((((int)threadIdx.x) >> 4) * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) & 15))] = ((v < 0x1p+1f/*2.000000e+00*/) ? 0x1p+1f/*2.000000e+00*/ : v);
  }
}
