// Launch(kernel='main_kernel', arguments=('compute_intermediate_1', 'x0', 'x1'), blocks=(7, 1, 1), threads=(32, 1, 1))
extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ compute_intermediate_1_ptr, float* __restrict__ x0_ptr, float* __restrict__ x1_ptr);
extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ compute_intermediate_1_ptr, float* __restrict__ x0_ptr, float* __restrict__ x1_ptr) {
  int cse_v1 = ((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 1));
  if (((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 1)) < 105) {
    int cse_v2 = ((((int)blockIdx.x) * 32) + ((int)threadIdx.x));
    float v = x0_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))];
    compute_intermediate_1_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = expf((((v < 0x0p+0f/*0.000000e+00*/) ? 0x0p+0f/*0.000000e+00*/ : v) + x1_ptr[((((((int)blockIdx.x) * 16) + (((int)threadIdx.x) >> 1)) % 35) / 5)]));
  }
}
