// Launch(kernel='main_kernel', arguments=('cut', 'w', 'x'), blocks=(1, 1, 1), threads=(256, 1, 1))
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ cut_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(256) main_kernel(float* __restrict__ cut_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr) {
  alignas(64) float sum_local_ptr[6];
  sum_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[1] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[2] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[3] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[4] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[5] = 0x0p+0f/*0.000000e+00*/;
  __shared__ alignas(64) float x_shared_ptr[2048];
  __shared__ alignas(64) float w_shared_ptr[3072];
  int cse_v1 = (((int)threadIdx.x) * 2);
  int cse_v4 = ((((int)threadIdx.x) >> 3) * 512);
  int cse_v5 = ((((int)threadIdx.x) & 7) * 2);
  int cse_v6 = ((((int)threadIdx.x) * 2) + 512);
  int cse_v15 = (((((int)threadIdx.x) >> 3) * 512) + ((((int)threadIdx.x) & 7) * 2));
  ptx_cp_async_legacy_ca_8_4_4(x_shared_ptr, (((int)threadIdx.x) * 2), x_ptr, (((((int)threadIdx.x) >> 3) * 512) + ((((int)threadIdx.x) & 7) * 2)));
  ptx_cp_async_legacy_ca_8_4_4(w_shared_ptr, (((int)threadIdx.x) * 2), w_ptr, (((int)threadIdx.x) * 2));
  if (((int)threadIdx.x) < 128) {
    ptx_cp_async_legacy_ca_8_4_4(w_shared_ptr, ((((int)threadIdx.x) * 2) + 512), w_ptr, ((((int)threadIdx.x) * 2) + 512));
  }
  tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
  ptx_cp_async_legacy_ca_8_4_4(x_shared_ptr, ((((int)threadIdx.x) * 2) + 512), x_ptr, ((((((int)threadIdx.x) >> 3) * 512) + ((((int)threadIdx.x) & 7) * 2)) + 16));
  int cse_v7 = ((((int)threadIdx.x) * 2) + 768);
  ptx_cp_async_legacy_ca_8_4_4(w_shared_ptr, ((((int)threadIdx.x) * 2) + 768), w_ptr, ((((int)threadIdx.x) * 2) + 768));
  if (((int)threadIdx.x) < 128) {
    int cse_v8 = ((((int)threadIdx.x) * 2) + 1280);
    ptx_cp_async_legacy_ca_8_4_4(w_shared_ptr, ((((int)threadIdx.x) * 2) + 1280), w_ptr, ((((int)threadIdx.x) * 2) + 1280));
  }
  tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
  ptx_cp_async_legacy_ca_8_4_4(x_shared_ptr, ((((int)threadIdx.x) * 2) + 1024), x_ptr, ((((((int)threadIdx.x) >> 3) * 512) + ((((int)threadIdx.x) & 7) * 2)) + 32));
  int cse_v9 = ((((int)threadIdx.x) * 2) + 1536);
  ptx_cp_async_legacy_ca_8_4_4(w_shared_ptr, ((((int)threadIdx.x) * 2) + 1536), w_ptr, ((((int)threadIdx.x) * 2) + 1536));
  if (((int)threadIdx.x) < 128) {
    int cse_v10 = ((((int)threadIdx.x) * 2) + 2048);
    ptx_cp_async_legacy_ca_8_4_4(w_shared_ptr, ((((int)threadIdx.x) * 2) + 2048), w_ptr, ((((int)threadIdx.x) * 2) + 2048));
  }
  tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
  int cse_v3 = (((int)threadIdx.x) >> 4);
  int cse_v13 = ((((int)threadIdx.x) >> 4) * 32);
  int cse_v14 = ((((int)threadIdx.x) & 15) * 3);
  for (int k_0_fused = 0; k_0_fused < 29; ++k_0_fused) {
    int cse_v11 = ((k_0_fused + 3) & 3);
    __syncthreads();
    ptx_cp_async_legacy_ca_8_4_4(x_shared_ptr, ((((k_0_fused + 3) & 3) * 512) + (((int)threadIdx.x) * 2)), x_ptr, (((((((int)threadIdx.x) >> 3) * 512) + (k_0_fused * 16)) + ((((int)threadIdx.x) & 7) * 2)) + 48));
    int cse_v12 = ((k_0_fused * 768) + (((int)threadIdx.x) * 2));
    int cse_v20 = ((((k_0_fused + 3) & 3) * 768) + (((int)threadIdx.x) * 2));
    ptx_cp_async_legacy_ca_8_4_4(w_shared_ptr, ((((k_0_fused + 3) & 3) * 768) + (((int)threadIdx.x) * 2)), w_ptr, (((k_0_fused * 768) + (((int)threadIdx.x) * 2)) + 2304));
    if (((int)threadIdx.x) < 128) {
      ptx_cp_async_legacy_ca_8_4_4(w_shared_ptr, (((((k_0_fused + 3) & 3) * 768) + (((int)threadIdx.x) * 2)) + 512), w_ptr, (((k_0_fused * 768) + (((int)threadIdx.x) * 2)) + 2816));
    }
    tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
    tvm_builtin_ptx_cp_async_wait_group_async_wait_group_3();
    __syncthreads();
    for (int k_1 = 0; k_1 < 4; ++k_1) {
      for (int k_2 = 0; k_2 < 4; ++k_2) {
        int cse_v2 = (k_0_fused & 3);
        int cse_v33 = (((((k_0_fused & 3) * 512) + ((((int)threadIdx.x) >> 4) * 32)) + (k_1 * 4)) + k_2);
        int cse_v34 = (((((k_0_fused & 3) * 768) + (k_1 * 192)) + (k_2 * 48)) + ((((int)threadIdx.x) & 15) * 3));
        sum_local_ptr[0] = (sum_local_ptr[0] + (x_shared_ptr[(((((k_0_fused & 3) * 512) + ((((int)threadIdx.x) >> 4) * 32)) + (k_1 * 4)) + k_2)] * w_shared_ptr[(((((k_0_fused & 3) * 768) + (k_1 * 192)) + (k_2 * 48)) + ((((int)threadIdx.x) & 15) * 3))]));
        int cse_v41 = ((((((k_0_fused & 3) * 768) + (k_1 * 192)) + (k_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1);
        sum_local_ptr[1] = (sum_local_ptr[1] + (x_shared_ptr[(((((k_0_fused & 3) * 512) + ((((int)threadIdx.x) >> 4) * 32)) + (k_1 * 4)) + k_2)] * w_shared_ptr[((((((k_0_fused & 3) * 768) + (k_1 * 192)) + (k_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1)]));
        int cse_v42 = ((((((k_0_fused & 3) * 768) + (k_1 * 192)) + (k_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2);
        sum_local_ptr[2] = (sum_local_ptr[2] + (x_shared_ptr[(((((k_0_fused & 3) * 512) + ((((int)threadIdx.x) >> 4) * 32)) + (k_1 * 4)) + k_2)] * w_shared_ptr[((((((k_0_fused & 3) * 768) + (k_1 * 192)) + (k_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2)]));
        int cse_v43 = ((((((k_0_fused & 3) * 512) + ((((int)threadIdx.x) >> 4) * 32)) + (k_1 * 4)) + k_2) + 16);
        sum_local_ptr[3] = (sum_local_ptr[3] + (x_shared_ptr[((((((k_0_fused & 3) * 512) + ((((int)threadIdx.x) >> 4) * 32)) + (k_1 * 4)) + k_2) + 16)] * w_shared_ptr[(((((k_0_fused & 3) * 768) + (k_1 * 192)) + (k_2 * 48)) + ((((int)threadIdx.x) & 15) * 3))]));
        sum_local_ptr[4] = (sum_local_ptr[4] + (x_shared_ptr[((((((k_0_fused & 3) * 512) + ((((int)threadIdx.x) >> 4) * 32)) + (k_1 * 4)) + k_2) + 16)] * w_shared_ptr[((((((k_0_fused & 3) * 768) + (k_1 * 192)) + (k_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1)]));
        sum_local_ptr[5] = (sum_local_ptr[5] + (x_shared_ptr[((((((k_0_fused & 3) * 512) + ((((int)threadIdx.x) >> 4) * 32)) + (k_1 * 4)) + k_2) + 16)] * w_shared_ptr[((((((k_0_fused & 3) * 768) + (k_1 * 192)) + (k_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2)]));
      }
    }
  }
  tvm_builtin_ptx_cp_async_wait_group_async_wait_group_2();
  __syncthreads();
  for (int k_1_1 = 0; k_1_1 < 4; ++k_1_1) {
    for (int k_2_1 = 0; k_2_1 < 4; ++k_2_1) {
      int cse_v16 = (((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3));
      int cse_v21 = ((((((int)threadIdx.x) >> 4) * 32) + (k_1_1 * 4)) + k_2_1);
      int cse_v22 = ((((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 768);
      int cse_v35 = (((((((int)threadIdx.x) >> 4) * 32) + (k_1_1 * 4)) + k_2_1) + 512);
      sum_local_ptr[0] = (sum_local_ptr[0] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_1 * 4)) + k_2_1) + 512)] * w_shared_ptr[((((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 768)]));
      int cse_v23 = ((((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 769);
      sum_local_ptr[1] = (sum_local_ptr[1] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_1 * 4)) + k_2_1) + 512)] * w_shared_ptr[((((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 769)]));
      int cse_v24 = ((((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 770);
      sum_local_ptr[2] = (sum_local_ptr[2] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_1 * 4)) + k_2_1) + 512)] * w_shared_ptr[((((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 770)]));
      int cse_v36 = (((((((int)threadIdx.x) >> 4) * 32) + (k_1_1 * 4)) + k_2_1) + 528);
      sum_local_ptr[3] = (sum_local_ptr[3] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_1 * 4)) + k_2_1) + 528)] * w_shared_ptr[((((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 768)]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_1 * 4)) + k_2_1) + 528)] * w_shared_ptr[((((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 769)]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_1 * 4)) + k_2_1) + 528)] * w_shared_ptr[((((k_1_1 * 192) + (k_2_1 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 770)]));
    }
  }
  tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();
  __syncthreads();
  for (int k_1_2 = 0; k_1_2 < 4; ++k_1_2) {
    for (int k_2_2 = 0; k_2_2 < 4; ++k_2_2) {
      int cse_v17 = (((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3));
      int cse_v25 = ((((((int)threadIdx.x) >> 4) * 32) + (k_1_2 * 4)) + k_2_2);
      int cse_v26 = ((((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1536);
      int cse_v37 = (((((((int)threadIdx.x) >> 4) * 32) + (k_1_2 * 4)) + k_2_2) + 1024);
      sum_local_ptr[0] = (sum_local_ptr[0] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_2 * 4)) + k_2_2) + 1024)] * w_shared_ptr[((((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1536)]));
      int cse_v27 = ((((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1537);
      sum_local_ptr[1] = (sum_local_ptr[1] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_2 * 4)) + k_2_2) + 1024)] * w_shared_ptr[((((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1537)]));
      int cse_v28 = ((((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1538);
      sum_local_ptr[2] = (sum_local_ptr[2] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_2 * 4)) + k_2_2) + 1024)] * w_shared_ptr[((((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1538)]));
      int cse_v38 = (((((((int)threadIdx.x) >> 4) * 32) + (k_1_2 * 4)) + k_2_2) + 1040);
      sum_local_ptr[3] = (sum_local_ptr[3] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_2 * 4)) + k_2_2) + 1040)] * w_shared_ptr[((((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1536)]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_2 * 4)) + k_2_2) + 1040)] * w_shared_ptr[((((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1537)]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_2 * 4)) + k_2_2) + 1040)] * w_shared_ptr[((((k_1_2 * 192) + (k_2_2 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 1538)]));
    }
  }
  tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0();
  __syncthreads();
  for (int k_1_3 = 0; k_1_3 < 4; ++k_1_3) {
    for (int k_2_3 = 0; k_2_3 < 4; ++k_2_3) {
      int cse_v18 = (((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3));
      int cse_v29 = ((((((int)threadIdx.x) >> 4) * 32) + (k_1_3 * 4)) + k_2_3);
      int cse_v30 = ((((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2304);
      int cse_v39 = (((((((int)threadIdx.x) >> 4) * 32) + (k_1_3 * 4)) + k_2_3) + 1536);
      sum_local_ptr[0] = (sum_local_ptr[0] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_3 * 4)) + k_2_3) + 1536)] * w_shared_ptr[((((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2304)]));
      int cse_v31 = ((((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2305);
      sum_local_ptr[1] = (sum_local_ptr[1] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_3 * 4)) + k_2_3) + 1536)] * w_shared_ptr[((((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2305)]));
      int cse_v32 = ((((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2306);
      sum_local_ptr[2] = (sum_local_ptr[2] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_3 * 4)) + k_2_3) + 1536)] * w_shared_ptr[((((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2306)]));
      int cse_v40 = (((((((int)threadIdx.x) >> 4) * 32) + (k_1_3 * 4)) + k_2_3) + 1552);
      sum_local_ptr[3] = (sum_local_ptr[3] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_3 * 4)) + k_2_3) + 1552)] * w_shared_ptr[((((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2304)]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_3 * 4)) + k_2_3) + 1552)] * w_shared_ptr[((((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2305)]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (x_shared_ptr[(((((((int)threadIdx.x) >> 4) * 32) + (k_1_3 * 4)) + k_2_3) + 1552)] * w_shared_ptr[((((k_1_3 * 192) + (k_2_3 * 48)) + ((((int)threadIdx.x) & 15) * 3)) + 2306)]));
    }
  }
  int cse_v19 = (((((int)threadIdx.x) >> 4) * 96) + ((((int)threadIdx.x) & 15) * 3));
  float v = sum_local_ptr[0];
  cut_ptr[(((((int)threadIdx.x) >> 4) * 96) + ((((int)threadIdx.x) & 15) * 3))] = ((v < 0x1p+0f/*1.000000e+00*/) ? 0x1p+0f/*1.000000e+00*/ : v);
  float v_1 = sum_local_ptr[1];
  cut_ptr[((((((int)threadIdx.x) >> 4) * 96) + ((((int)threadIdx.x) & 15) * 3)) + 1)] = ((v_1 < 0x1p+0f/*1.000000e+00*/) ? 0x1p+0f/*1.000000e+00*/ : v_1);
  float v_2 = sum_local_ptr[2];
  cut_ptr[((((((int)threadIdx.x) >> 4) * 96) + ((((int)threadIdx.x) & 15) * 3)) + 2)] = ((v_2 < 0x1p+0f/*1.000000e+00*/) ? 0x1p+0f/*1.000000e+00*/ : v_2);
  float v_3 = sum_local_ptr[3];
  cut_ptr[((((((int)threadIdx.x) >> 4) * 96) + ((((int)threadIdx.x) & 15) * 3)) + 48)] = ((v_3 < 0x1p+0f/*1.000000e+00*/) ? 0x1p+0f/*1.000000e+00*/ : v_3);
  float v_4 = sum_local_ptr[4];
  cut_ptr[((((((int)threadIdx.x) >> 4) * 96) + ((((int)threadIdx.x) & 15) * 3)) + 49)] = ((v_4 < 0x1p+0f/*1.000000e+00*/) ? 0x1p+0f/*1.000000e+00*/ : v_4);
  float v_5 = sum_local_ptr[5];
  cut_ptr[((((((int)threadIdx.x) >> 4) * 96) + ((((int)threadIdx.x) & 15) * 3)) + 50)] = ((v_5 < 0x1p+0f/*1.000000e+00*/) ? 0x1p+0f/*1.000000e+00*/ : v_5);
}
