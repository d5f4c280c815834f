// Runs kernels of another processor one after another: RUNNER INPUTS OUTPUTS.
//
// INPUTS holds for each kernel of the table: int32 number of tensors, and for each of them int32 code, bits and rank,
// int64 sizes, the bytes. OUTPUTS gets for each kernel what it returned (int32) and the bytes of its last tensor.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Any {
  int32_t type_index;
  uint32_t padding;
  void* pointer;
};

struct Tensor {
  void* data;
  int32_t device_type, device_id;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

typedef int (*Kernel)(void* self, const Any* args, int32_t count, Any* result);

extern const Kernel tune_kernels[];
extern const int tune_kernel_count;

const int MOST = 32;        // tensors of a kernel
const int32_t TENSOR = 7;   // TVM's type index
const int32_t ON_CPU = 1;   // DLPack's device type
const int ALIGNMENT = 64;   // what kernels assume of every tensor

extern "C" {
extern void* __TVMBackendAllocWorkspace;
extern void* __TVMBackendFreeWorkspace;
}

static void* allocate(int, int, uint64_t bytes, int, int) {
  void* memory = nullptr;
  return posix_memalign(&memory, ALIGNMENT, bytes) == 0 ? memory : nullptr;
}

static int release(int, int, void* memory) {
  free(memory);
  return 0;
}

static void get(void* to, size_t bytes, FILE* file) {
  if (fread(to, 1, bytes, file) != bytes) exit(3);
}

int main(int, char** argv) {
  FILE* inputs = fopen(argv[1], "rb");
  FILE* outputs = fopen(argv[2], "wb");
  if (inputs == nullptr || outputs == nullptr) return 2;
  __TVMBackendAllocWorkspace = reinterpret_cast<void*>(&allocate);  // the core's are for threads of its own
  __TVMBackendFreeWorkspace = reinterpret_cast<void*>(&release);
  for (int number = 0; number < tune_kernel_count; ++number) {
    Tensor tensors[MOST];
    Any args[MOST], result;
    int64_t shapes[MOST][8];
    size_t bytes = 0;
    int32_t count;
    get(&count, sizeof(count), inputs);
    for (int32_t i = 0; i < count; ++i) {
      int32_t head[3];
      get(head, sizeof(head), inputs);
      get(shapes[i], sizeof(int64_t) * static_cast<size_t>(head[2]), inputs);
      bytes = static_cast<size_t>(head[1]) / 8;
      for (int32_t axis = 0; axis < head[2]; ++axis) bytes *= static_cast<size_t>(shapes[i][axis]);
      void* data = nullptr;
      if (posix_memalign(&data, ALIGNMENT, bytes + ALIGNMENT) != 0) return 4;
      get(data, bytes, inputs);
      tensors[i] = {data, ON_CPU, 0, head[2], static_cast<uint8_t>(head[0]), static_cast<uint8_t>(head[1]), 1,
                    shapes[i], nullptr, 0};
      args[i] = {TENSOR, 0, &tensors[i]};
    }
    memset(&result, 0, sizeof(result));
    const int32_t returned = tune_kernels[number](nullptr, args, count, &result);
    fwrite(&returned, sizeof(returned), 1, outputs);
    fwrite(tensors[count - 1].data, 1, bytes, outputs);
    for (int32_t i = 0; i < count; ++i) free(tensors[i].data);
  }
  return fclose(outputs);
}
