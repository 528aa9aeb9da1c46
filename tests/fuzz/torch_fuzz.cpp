// A PyTorch .bin file: the zip archive, its pickle, and the offsets of its tensors.
#include <cstdlib>

#include "tests/fuzz/fuzz.h"
#include "worker/loader/torch_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  const auto tensors =
      worker::ReadTorchTensors("fuzz.bin", {reinterpret_cast<const std::byte*>(data), size});
  fuzz::Accept(tensors.status());
  if (!tensors.ok()) return 0;
  for (const auto& [name, tensor] : *tensors) {
    if (tensor.begin > tensor.end || tensor.end > size) std::abort();
  }
  return 0;
}
