// Launch(kernel='main_kernel', arguments=('gemm', 'w', 'x'), blocks=(6, 1, 1), threads=(128, 1, 1))
// Launch(kernel='main_kernel_1', arguments=('bias', 'gemm', 'relu', 'residual'), blocks=(6, 1, 1), threads=(128, 1, 1))
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ gemm_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(128) main_kernel_1(float* __restrict__ bias_ptr, float* __restrict__ gemm_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr);
extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ gemm_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr) {
  for (int k = 0; k < 16; ++k) {
    if (((((int)blockIdx.x) * 8) + (((int)threadIdx.x) >> 4)) < 45) {
      int cse_v1 = ((((int)blockIdx.x) * 128) + ((int)threadIdx.x));
      if (k == 0) {
        gemm_ptr[((((int)blockIdx.x) * 128) + ((int)threadIdx.x))] = 0x0p+0f/*0.000000e+00*/;
      }
      gemm_ptr[((((int)blockIdx.x) * 128) + ((int)threadIdx.x))] = (gemm_ptr[((((int)blockIdx.x) * 128) + ((int)threadIdx.x))] + (x_ptr[(((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 3)) / 3) * 16) + k)] * w_ptr[((k * 24) + (((((int)blockIdx.x) * 128) + ((int)threadIdx.x)) % 24))]));
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) main_kernel_1(float* __restrict__ bias_ptr, float* __restrict__ gemm_ptr, float* __restrict__ relu_ptr, float* __restrict__ residual_ptr) {
  if (((((int)blockIdx.x) * 8) + (((int)threadIdx.x) >> 4)) < 45) {
    int cse_v2 = ((((int)blockIdx.x) * 128) + ((int)threadIdx.x));
    float v = ((gemm_ptr[((((int)blockIdx.x) * 128) + ((int)threadIdx.x))] + bias_ptr[(((((int)blockIdx.x) * 128) + ((int)threadIdx.x)) % 24)]) + residual_ptr[((((int)blockIdx.x) * 128) + ((int)threadIdx.x))]);
    relu_ptr[((((int)blockIdx.x) * 128) + ((int)threadIdx.x))] = ((v < 0x1p+1f/*2.000000e+00*/) ? 0x1p+1f/*2.000000e+00*/ : v);
  }
}
