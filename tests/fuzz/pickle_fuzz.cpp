// Only the pickle of a PyTorch .bin file: in a whole archive, the archive's own checks would reject
// most mutations.
#include <cstdlib>

#include "tests/fuzz/fuzz.h"
#include "worker/loader/pickle_machine.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  const auto dict =
      worker::ReadPickledTensors("data.pkl", {reinterpret_cast<const std::byte*>(data), size});
  fuzz::Accept(dict.status());
  if (!dict.ok()) return 0;
  // Every view is read, so that the sanitizers check it.
  std::string all;
  for (const auto& [name, tensor] : dict->tensors) {
    all.assign(name).append(tensor.element).append(tensor.key);
  }
  for (const std::string_view key : dict->others) all.assign(key);
  return 0;
}
