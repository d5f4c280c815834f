// Launch(kernel='main_kernel', arguments=('bias', 'relu', 'residual', 'w', 'x'), blocks=(8, 1, 1), threads=(256, 1, 1))
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr) {
  #pragma unroll
  for (int64_t var = (int64_t)0; var < (int64_t)1; ++var) {
    alignas(64) float gemm_pad_local_ptr[1];
    gemm_pad_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    __shared__ alignas(64) float rows_pad_shared_ptr[640];
    __shared__ alignas(64) float columns_pad_shared_ptr[512];
    int cse_v1 = (((int)blockIdx.x) & 1);
    int cse_v2 = (((int)threadIdx.x) >> 4);
    int cse_v3 = (((int)threadIdx.x) & 15);
    int cse_v4 = (((int)blockIdx.x) >> 1);
    int cse_v5 = (((int)threadIdx.x) & 3);
    int cse_v8 = ((((int)threadIdx.x) & 15) >> 2);
    int cse_v9 = ((((int)blockIdx.x) & 1) * 256);
    int cse_v10 = ((((int)threadIdx.x) >> 4) * 16);
    int cse_v11 = ((((int)blockIdx.x) >> 1) * 4);
    int cse_v12 = ((((int)threadIdx.x) >> 4) * 20);
    int cse_v13 = ((((int)blockIdx.x) >> 1) * 108);
    int cse_v14 = ((((int)threadIdx.x) >> 4) * 3);
    int cse_v17 = (((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4));
    int cse_v20 = ((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) / 5);
    int cse_v21 = ((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) % 5);
    int cse_v7 = ((((int)threadIdx.x) & 15) / 12);
    int cse_v18 = (((((int)threadIdx.x) & 15) >> 2) % 3);
    int cse_v22 = (((((int)threadIdx.x) & 15) / 12) + ((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) / 5));
    int cse_v23 = (((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) % 5) + (((((int)threadIdx.x) & 15) >> 2) % 3));
    __syncthreads();
    ptx_cp_async_legacy_pred_ca_4_4_4(rows_pad_shared_ptr, (((((int)threadIdx.x) >> 4) * 20) + (((int)threadIdx.x) & 15)), x_ptr, ((((((((((int)blockIdx.x) & 1) * 256) + (((((int)threadIdx.x) & 15) / 12) * 80)) + ((((int)threadIdx.x) >> 4) * 16)) + ((((((int)threadIdx.x) & 15) >> 2) % 3) * 16)) + ((((int)blockIdx.x) >> 1) * 4)) + (((int)threadIdx.x) & 3)) - 96), ((((((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) < 25) && (1 <= (((((int)threadIdx.x) & 15) / 12) + ((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) / 5)))) && ((((((int)threadIdx.x) & 15) / 12) + ((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) / 5)) < 6)) && (1 <= (((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) % 5) + (((((int)threadIdx.x) & 15) >> 2) % 3)))) && ((((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) % 5) + (((((int)threadIdx.x) & 15) >> 2) % 3)) < 6)));
    ptx_cp_async_legacy_pred_ca_4_4_4(columns_pad_shared_ptr, ((int)threadIdx.x), w_ptr, ((((((int)blockIdx.x) >> 1) * 108) + ((((int)threadIdx.x) >> 4) * 3)) + (((int)threadIdx.x) & 15)), ((((int)threadIdx.x) & 15) < 3));
    tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
    #pragma unroll
    for (int k_0 = 0; k_0 < 2; ++k_0) {
      int cse_v6 = (k_0 * 4);
      int cse_v15 = ((k_0 + 1) & 1);
      int cse_v19 = ((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2));
      int cse_v24 = ((((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2)) + 4) / 3);
      int cse_v25 = ((((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2)) + 1) % 3);
      int cse_v27 = (((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) % 5) + ((((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2)) + 1) % 3));
      __syncthreads();
      ptx_cp_async_legacy_pred_ca_4_4_4(rows_pad_shared_ptr, (((((k_0 + 1) & 1) * 320) + ((((int)threadIdx.x) >> 4) * 20)) + (((int)threadIdx.x) & 15)), x_ptr, ((((((((((int)blockIdx.x) & 1) * 256) + (((((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2)) + 4) / 3) * 80)) + ((((int)threadIdx.x) >> 4) * 16)) + (((((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2)) + 1) % 3) * 16)) + ((((int)blockIdx.x) >> 1) * 4)) + (((int)threadIdx.x) & 3)) - 96), ((((((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) < 25) && (((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2)) < 5)) && ((((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) / 5) + ((((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2)) + 4) / 3)) < 6)) && (1 <= (((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) % 5) + ((((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2)) + 1) % 3)))) && ((((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) % 5) + ((((k_0 * 4) + ((((int)threadIdx.x) & 15) >> 2)) + 1) % 3)) < 6)));
      ptx_cp_async_legacy_pred_ca_4_4_4(columns_pad_shared_ptr, ((((k_0 + 1) & 1) * 256) + ((int)threadIdx.x)), w_ptr, ((((((((int)blockIdx.x) >> 1) * 108) + (k_0 * 48)) + ((((int)threadIdx.x) >> 4) * 3)) + (((int)threadIdx.x) & 15)) + 48), ((((k_0 * 4) + (((int)threadIdx.x) >> 6)) < 5) && ((((int)threadIdx.x) & 15) < 3)));
      tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
      tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();
      __syncthreads();
      #pragma unroll
      for (int k_1 = 0; k_1 < 4; ++k_1) {
        alignas(64) float rows_pad_local_ptr[4];
        *(float4*)(rows_pad_local_ptr + 0) = *(float4*)(rows_pad_shared_ptr + (((k_0 * 320) + ((((int)threadIdx.x) >> 4) * 20)) + (k_1 * 4)));
        #pragma unroll
        for (int k_2 = 0; k_2 < 4; ++k_2) {
          alignas(64) float columns_pad_local_ptr[1];
          columns_pad_local_ptr[0] = columns_pad_shared_ptr[((((k_0 * 256) + (k_1 * 64)) + (k_2 * 16)) + (((int)threadIdx.x) & 15))];
          gemm_pad_local_ptr[0] = (gemm_pad_local_ptr[0] + (rows_pad_local_ptr[k_2] * columns_pad_local_ptr[0]));
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
        gemm_pad_local_ptr[0] = (gemm_pad_local_ptr[0] + (rows_pad_local_ptr_1[k_2_1] * columns_pad_local_ptr_1[0]));
      }
    }
    if (((((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) >> 4)) < 25) && ((((int)threadIdx.x) & 15) < 3)) {
      int cse_v16 = ((((int)blockIdx.x) >> 1) * 3);
      int cse_v26 = (((((((int)blockIdx.x) & 1) * 192) + ((((int)threadIdx.x) >> 4) * 12)) + ((((int)blockIdx.x) >> 1) * 3)) + (((int)threadIdx.x) & 15));
      float v = ((gemm_pad_local_ptr[0] + bias_ptr[(((((int)blockIdx.x) >> 1) * 3) + (((int)threadIdx.x) & 15))]) + residual_ptr[(((((((int)blockIdx.x) & 1) * 192) + ((((int)threadIdx.x) >> 4) * 12)) + ((((int)blockIdx.x) >> 1) * 3)) + (((int)threadIdx.x) & 15))]);
      relu_ptr[(((((((int)blockIdx.x) & 1) * 192) + ((((int)threadIdx.x) >> 4) * 12)) + ((((int)blockIdx.x) >> 1) * 3)) + (((int)threadIdx.x) & 15))] = ((v < 0x1p+1f/*2.000000e+00*/) ? 0x1p+1f/*2.000000e+00*/ : v);
    }
  }
}
