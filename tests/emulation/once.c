/* Runs an exported library called "model" once, on its first recorded case: ONCE CASES OUTPUTS. */
#include <model.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void* read_tensor(FILE* file, size_t* bytes) {
  int64_t size = 0;
  if (fread(&size, sizeof(size), 1, file) != 1) exit(3);
  void* data = malloc((size_t)size + 1);
  if (fread(data, 1, (size_t)size, file) != (size_t)size) exit(3);
  *bytes = (size_t)size;
  return data;
}

int main(int argc, char** argv) {
  model_input_buffer inputs[16];
  model_output_buffer outputs[16];
  model_model* model;
  model_stream* stream;
  model_error error;
  size_t i;
  int64_t set;
  FILE* cases = argc == 3 ? fopen(argv[1], "rb") : NULL;
  FILE* written = argc == 3 ? fopen(argv[2], "wb") : NULL;
  if (cases == NULL || written == NULL || fread(&set, sizeof(set), 1, cases) != 1) return 2;
  for (i = 0; i < model_inputs(); ++i) inputs[i].data = read_tensor(cases, &inputs[i].bytes);
  for (i = 0; i < model_outputs(); ++i) outputs[i].data = read_tensor(cases, &outputs[i].bytes);
  if (model_open(NULL, &model, &error) != MODEL_OK || model_open_stream(model, NULL, &stream, &error) != MODEL_OK ||
      model_run(stream, (size_t)set, inputs, outputs, &error) != MODEL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  for (i = 0; i < model_outputs(); ++i) fwrite(outputs[i].data, 1, outputs[i].bytes, written);
  return fclose(written);
}
