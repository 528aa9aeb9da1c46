// The pickle of a PyTorch .bin file alone: an archive's checks would stop most changes to it.
#include <cstdlib>

#include "tests/fuzz/fuzz.h"
#include "worker/loader/pickle_machine.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  const auto dict =
      worker::ReadPickledTensors("data.pkl", {reinterpret_cast<const std::byte*>(data), size});
  fuzz::Accept(dict.status());
  if (!dict.ok()) return 0;
  // Every view is read, for the sanitizers.
  std::string all;
  for (const auto& [name, tensor] : dict->tensors) {
    all.assign(name).append(tensor.element).append(tensor.key);
  }
  for (const std::string_view key : dict->others) all.assign(key);
  return 0;
}
