// A GGUF file: metadata of every type, and the offsets of its tensors.
#include <cstdlib>

#include "common/gguf/gguf_file.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  const auto file =
      gguf::GgufFile::Parse("fuzz.gguf", {reinterpret_cast<const std::byte*>(data), size});
  fuzz::Accept(file.status());
  if (!file.ok()) return 0;
  for (const auto& [key, value] : (*file)->metadata()) {
    fuzz::Accept((*file)->String(key).status());
    fuzz::Accept((*file)->Int(key).status());
    fuzz::Accept((*file)->Float(key).status());
    fuzz::Accept((*file)->Bool(key).status());
    fuzz::Accept((*file)->Strings(key).status());
    fuzz::Accept((*file)->Ints(key).status());
    fuzz::Accept((*file)->Floats(key).status());
    fuzz::Accept((*file)->Bools(key).status());
  }
  for (const auto& [name, tensor] : (*file)->tensors()) {
    if (tensor.begin > tensor.end || tensor.end > size) std::abort();
  }
  return 0;
}
