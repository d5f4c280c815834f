// Launch(kernel='main_kernel', arguments=('window', 'x'), blocks=(13, 1, 1), threads=(32, 1, 1))
extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ window_ptr, float* __restrict__ x_ptr);
extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ window_ptr, float* __restrict__ x_ptr) {
  alignas(64) float window_local_ptr[1];
  int cse_v1 = ((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4));
  int cse_v2 = (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5);
  int cse_v3 = ((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15));
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    window_local_ptr[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
    float condval;
    if ((5 <= ((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4))) && (1 <= (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5))) {
      condval = x_ptr[(((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15)) - 160)];
    } else {
      condval = -0x1.fffffep+127f/*-3.402823e+38*/;
    }
    window_local_ptr[0] = max(window_local_ptr[0], condval);
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    float condval_1;
    if (5 <= ((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4))) {
      condval_1 = x_ptr[(((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15)) - 144)];
    } else {
      condval_1 = -0x1.fffffep+127f/*-3.402823e+38*/;
    }
    window_local_ptr[0] = max(window_local_ptr[0], condval_1);
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    float condval_2;
    if ((5 <= ((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4))) && ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) < 4)) {
      condval_2 = x_ptr[(((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15)) - 128)];
    } else {
      condval_2 = -0x1.fffffep+127f/*-3.402823e+38*/;
    }
    window_local_ptr[0] = max(window_local_ptr[0], condval_2);
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    float condval_3;
    if (1 <= (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5)) {
      condval_3 = x_ptr[(((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15)) - 16)];
    } else {
      condval_3 = -0x1.fffffep+127f/*-3.402823e+38*/;
    }
    window_local_ptr[0] = max(window_local_ptr[0], condval_3);
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    window_local_ptr[0] = max(window_local_ptr[0], x_ptr[((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15))]);
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    float condval_4;
    if ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) < 4) {
      condval_4 = x_ptr[(((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15)) + 16)];
    } else {
      condval_4 = -0x1.fffffep+127f/*-3.402823e+38*/;
    }
    window_local_ptr[0] = max(window_local_ptr[0], condval_4);
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    float condval_5;
    if ((((int)blockIdx.x) < 10) && (1 <= (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5))) {
      condval_5 = x_ptr[(((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15)) + 128)];
    } else {
      condval_5 = -0x1.fffffep+127f/*-3.402823e+38*/;
    }
    window_local_ptr[0] = max(window_local_ptr[0], condval_5);
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    float condval_6;
    if (((int)blockIdx.x) < 10) {
      condval_6 = x_ptr[(((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15)) + 144)];
    } else {
      condval_6 = -0x1.fffffep+127f/*-3.402823e+38*/;
    }
    window_local_ptr[0] = max(window_local_ptr[0], condval_6);
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    float condval_7;
    if ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 19) && ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) < 4)) {
      condval_7 = x_ptr[(((((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) / 5) * 288) + ((((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) % 5) * 32)) + (((int)threadIdx.x) & 15)) + 160)];
    } else {
      condval_7 = -0x1.fffffep+127f/*-3.402823e+38*/;
    }
    window_local_ptr[0] = max(window_local_ptr[0], condval_7);
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 4)) < 25) {
    window_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = window_local_ptr[0];
  }
}
