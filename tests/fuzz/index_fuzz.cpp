// model.safetensors.index.json, and the checkpoint's tensors found through it.
#include "tests/fuzz/fuzz.h"
#include "worker/loader/weight_source.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  const fuzz::Folder& folder = fuzz::TheFolder();
  folder.Write("model.safetensors.index.json", fuzz::Text(data, size));
  const std::vector<worker::TensorRequest> requests{
      {.name = "model.embed_tokens.weight", .rows = 4, .cols = 2},
      {.name = "model.layers.0.input_layernorm.weight", .cols = 2, .is_vector = true}};
  fuzz::Accept(worker::OpenCheckpoint(folder.path(), requests).status());
  return 0;
}
