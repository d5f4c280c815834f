// Launch(kernel='main_kernel', arguments=('one', 'out', 'two'), blocks=(4, 1, 1), threads=(32, 1, 1))
// Launch(kernel='main_kernel_1', arguments=('out', 'r', 'x'), blocks=(2, 1, 1), threads=(256, 4, 1))
extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ one_ptr, float* __restrict__ out_ptr, float* __restrict__ two_ptr);
extern "C" __global__ void __launch_bounds__(1024) main_kernel_1(float* __restrict__ out_ptr, float* __restrict__ r_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ one_ptr, float* __restrict__ out_ptr, float* __restrict__ two_ptr) {
  int cse_v8 = ((((int)blockIdx.x) * 32) + ((int)threadIdx.x));
  out_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = one_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))];
  out_ptr[(((((int)blockIdx.x) * 32) + ((int)threadIdx.x)) + 512)] = two_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))];
}

extern "C" __global__ void __launch_bounds__(1024) main_kernel_1(float* __restrict__ out_ptr, float* __restrict__ r_ptr, float* __restrict__ x_ptr) {
  __shared__ alignas(64) float h_ptr[64];
  alignas(64) float c_ptr[1];
  __shared__ alignas(64) float parts_ptr[1024];
  alignas(64) float acc_ptr[1];
  alignas(64) float state_ptr[4];
  alignas(64) float kept_ptr[16];
  alignas(64) float share_ptr[4];
  alignas(64) float total_ptr[4];
  int cse_v1 = (((int)threadIdx.y) * 4);
  int cse_v2 = (((int)threadIdx.x) >> 6);
  int cse_v3 = (((int)threadIdx.y) * 256);
  int cse_v4 = (((int)blockIdx.x) * 64);
  int cse_v9 = ((((int)threadIdx.y) * 4) + (((int)threadIdx.x) >> 6));
  int cse_v10 = ((((int)threadIdx.y) * 256) + ((int)threadIdx.x));
  int cse_v11 = (((((int)threadIdx.y) * 256) + (((int)blockIdx.x) * 64)) + ((int)threadIdx.x));
  if (((((int)threadIdx.y) * 4) + (((int)threadIdx.x) >> 6)) < 1) {
    h_ptr[((((int)threadIdx.y) * 256) + ((int)threadIdx.x))] = out_ptr[(((((int)threadIdx.y) * 256) + (((int)blockIdx.x) * 64)) + ((int)threadIdx.x))];
  }
  if (((((int)threadIdx.y) * 4) + (((int)threadIdx.x) >> 6)) < 1) {
    c_ptr[0] = out_ptr[((((((int)threadIdx.y) * 256) + (((int)blockIdx.x) * 64)) + ((int)threadIdx.x)) + 512)];
  }
  int cse_v5 = (((int)threadIdx.x) & 63);
  int cse_v6 = (((int)threadIdx.x) & 31);
  int cse_v15 = ((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31));
  kept_ptr[0] = r_ptr[((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31))];
  kept_ptr[1] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 128)];
  kept_ptr[2] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 256)];
  kept_ptr[3] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 384)];
  kept_ptr[4] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 2048)];
  kept_ptr[5] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 2176)];
  kept_ptr[6] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 2304)];
  kept_ptr[7] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 2432)];
  kept_ptr[8] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 4096)];
  kept_ptr[9] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 4224)];
  kept_ptr[10] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 4352)];
  kept_ptr[11] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 4480)];
  kept_ptr[12] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 6144)];
  kept_ptr[13] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 6272)];
  kept_ptr[14] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 6400)];
  kept_ptr[15] = r_ptr[(((((((((int)threadIdx.x) & 63) >> 5) * 8192) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 6) * 32)) + (((int)threadIdx.x) & 31)) + 6528)];
  for (int step = 0; step < 3; ++step) {
    int cse_v7 = (((int)threadIdx.y) * 1024);
    if (((((int)threadIdx.y) * 4) + (((int)threadIdx.x) >> 6)) < 1) {
      int cse_v14 = (((((((int)threadIdx.y) * 1024) + (step * 512)) + (((int)blockIdx.x) * 256)) + ((((int)threadIdx.x) >> 5) * 128)) + (((int)threadIdx.x) & 31));
      share_ptr[0] = x_ptr[(((((((int)threadIdx.y) * 1024) + (step * 512)) + (((int)blockIdx.x) * 256)) + ((((int)threadIdx.x) >> 5) * 128)) + (((int)threadIdx.x) & 31))];
      share_ptr[1] = x_ptr[((((((((int)threadIdx.y) * 1024) + (step * 512)) + (((int)blockIdx.x) * 256)) + ((((int)threadIdx.x) >> 5) * 128)) + (((int)threadIdx.x) & 31)) + 32)];
      share_ptr[2] = x_ptr[((((((((int)threadIdx.y) * 1024) + (step * 512)) + (((int)blockIdx.x) * 256)) + ((((int)threadIdx.x) >> 5) * 128)) + (((int)threadIdx.x) & 31)) + 64)];
      share_ptr[3] = x_ptr[((((((((int)threadIdx.y) * 1024) + (step * 512)) + (((int)blockIdx.x) * 256)) + ((((int)threadIdx.x) >> 5) * 128)) + (((int)threadIdx.x) & 31)) + 96)];
    }
    acc_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    __syncthreads();
    *(float4*)(state_ptr + 0) = *(float4*)(h_ptr + (((int)threadIdx.y) * 4));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[0] * kept_ptr[0]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[1] * kept_ptr[1]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[2] * kept_ptr[2]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[3] * kept_ptr[3]));
    *(float4*)(state_ptr + 0) = *(float4*)(h_ptr + ((((int)threadIdx.y) * 4) + 16));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[0] * kept_ptr[4]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[1] * kept_ptr[5]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[2] * kept_ptr[6]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[3] * kept_ptr[7]));
    *(float4*)(state_ptr + 0) = *(float4*)(h_ptr + ((((int)threadIdx.y) * 4) + 32));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[0] * kept_ptr[8]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[1] * kept_ptr[9]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[2] * kept_ptr[10]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[3] * kept_ptr[11]));
    *(float4*)(state_ptr + 0) = *(float4*)(h_ptr + ((((int)threadIdx.y) * 4) + 48));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[0] * kept_ptr[12]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[1] * kept_ptr[13]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[2] * kept_ptr[14]));
    acc_ptr[0] = (acc_ptr[0] + (state_ptr[3] * kept_ptr[15]));
    parts_ptr[((((int)threadIdx.y) * 256) + ((int)threadIdx.x))] = acc_ptr[0];
    __syncthreads();
    if (((((int)threadIdx.y) * 4) + (((int)threadIdx.x) >> 6)) < 1) {
      int cse_v12 = (((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63));
      total_ptr[0] = parts_ptr[(((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63))];
      total_ptr[0] = (total_ptr[0] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 256)]);
      total_ptr[0] = (total_ptr[0] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 512)]);
      total_ptr[0] = (total_ptr[0] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 768)]);
      total_ptr[1] = parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 64)];
      total_ptr[1] = (total_ptr[1] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 320)]);
      total_ptr[1] = (total_ptr[1] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 576)]);
      total_ptr[1] = (total_ptr[1] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 832)]);
      total_ptr[2] = parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 128)];
      total_ptr[2] = (total_ptr[2] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 384)]);
      total_ptr[2] = (total_ptr[2] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 640)]);
      total_ptr[2] = (total_ptr[2] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 896)]);
      total_ptr[3] = parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 192)];
      total_ptr[3] = (total_ptr[3] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 448)]);
      total_ptr[3] = (total_ptr[3] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 704)]);
      total_ptr[3] = (total_ptr[3] + parts_ptr[((((((int)threadIdx.y) * 1024) + ((((int)threadIdx.x) >> 6) * 256)) + (((int)threadIdx.x) & 63)) + 960)]);
      total_ptr[0] = (total_ptr[0] + share_ptr[0]);
      total_ptr[1] = (total_ptr[1] + share_ptr[1]);
      total_ptr[2] = (total_ptr[2] + share_ptr[2]);
      total_ptr[3] = (total_ptr[3] + share_ptr[3]);
      c_ptr[0] = (((0x1p+0f/*1.000000e+00*/ / (0x1p+0f/*1.000000e+00*/ + expf((0x0p+0f/*0.000000e+00*/ - total_ptr[2])))) * c_ptr[0]) + ((0x1p+0f/*1.000000e+00*/ / (0x1p+0f/*1.000000e+00*/ + expf((0x0p+0f/*0.000000e+00*/ - total_ptr[0])))) * tanhf(total_ptr[3])));
      total_ptr[0] = ((0x1p+0f/*1.000000e+00*/ / (0x1p+0f/*1.000000e+00*/ + expf((0x0p+0f/*0.000000e+00*/ - total_ptr[1])))) * tanhf(c_ptr[0]));
      int cse_v13 = ((((((int)threadIdx.y) * 256) + (step * 128)) + (((int)blockIdx.x) * 64)) + ((int)threadIdx.x));
      out_ptr[(((((((int)threadIdx.y) * 256) + (step * 128)) + (((int)blockIdx.x) * 64)) + ((int)threadIdx.x)) + 640)] = c_ptr[0];
      out_ptr[(((((((int)threadIdx.y) * 256) + (step * 128)) + (((int)blockIdx.x) * 64)) + ((int)threadIdx.x)) + 128)] = total_ptr[0];
      h_ptr[((((int)threadIdx.y) * 256) + ((int)threadIdx.x))] = total_ptr[0];
    }
  }
}
