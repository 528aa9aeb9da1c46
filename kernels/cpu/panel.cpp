#include "kernels/cpu/panel.h"

#include <cstring>

#include "common/float_convert.h"

namespace stagecoach::kernels {
namespace {

// Source and panel have the same 2- or 4-byte type. source: [cols], no alignment needed.
template <typename Element>
void CopyRow(const uint8_t* source, uint8_t* panel, DType dtype, size_t row, size_t cols) {
  for (size_t col = 0; col < cols; ++col) {
    std::memcpy(panel + PanelIndex(dtype, row, col) * sizeof(Element),
                source + col * sizeof(Element), sizeof(Element));
  }
}

}  // namespace

void PackRow(const uint8_t* source, DType source_dtype, uint8_t* panel, DType dtype, size_t row,
             size_t cols) {
  if (source_dtype != dtype) {
    for (size_t col = 0; col < cols; ++col) {
      StoreElement(panel, dtype, PanelIndex(dtype, row, col),
                   LoadElement(source, source_dtype, col));
    }
  } else if (dtype == DType::kF32) {
    CopyRow<float>(source, panel, dtype, row, cols);
  } else {
    CopyRow<uint16_t>(source, panel, dtype, row, cols);
  }
}

}  // namespace stagecoach::kernels
