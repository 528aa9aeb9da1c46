#include "worker/loader/dequantize.h"

#include "common/check.h"
#include "common/float_convert.h"
#include "common/gguf/blocks.h"

namespace stagecoach::worker {

void Dequantize(Encoding encoding, const std::byte* from, int64_t n, float* out) {
  if (!gguf::IsQuantized(encoding)) {
    const DType dtype = *PlainDType(encoding);
    for (int64_t i = 0; i < n; ++i) out[i] = LoadElement(from, dtype, static_cast<size_t>(i));
    return;
  }
  const gguf::BlockForm form = gguf::FormOf(encoding);
  const size_t bytes = gguf::LayoutOf(encoding)->bytes;
  const int64_t elements = static_cast<int64_t>(form.elements);
  SC_CHECK(n % elements == 0);
  const uint8_t* block = reinterpret_cast<const uint8_t*>(from);
  gguf::BlockCodes codes;
  for (int64_t i = 0; i < n; i += elements, block += bytes) {
    gguf::UnpackBlock(encoding, block, &codes);
    gguf::BlockValues(form, codes, out + i);
  }
}

}  // namespace stagecoach::worker
