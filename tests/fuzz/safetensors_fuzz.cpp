// A .safetensors file: the header, and the offsets that it gives for the tensors.
#include <cstdlib>

#include "tests/fuzz/fuzz.h"
#include "worker/loader/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  const auto tensors =
      worker::ReadSafetensors("fuzz.safetensors", {reinterpret_cast<const std::byte*>(data), size});
  fuzz::Accept(tensors.status());
  if (!tensors.ok()) return 0;
  for (const auto& [name, tensor] : *tensors) {
    if (tensor.begin > tensor.end || tensor.end > size) std::abort();
  }
  return 0;
}
