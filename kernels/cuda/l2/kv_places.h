// Memory of KV caches, and in which L2 partition its pages are.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

class KvPlaces {
 public:
  // See Ops::AdoptKv. New memory is measured, if stream->l2 is known. The order of rows in memory
  // from another process follows that process's measurements, so stream->l2 becomes what it was
  // there.
  absl::StatusOr<std::string> Adopt(Stream* stream, const Buffer& memory, std::string_view notes);

  // Which rows of a layer are swapped; none, if its memory is unknown here.
  KvSides SidesOf(const Stream& stream, const KvLayer& kv, int32_t n_kv_heads,
                  int32_t head_dim) const;

 private:
  struct Memory {
    std::weak_ptr<void> memory;
    size_t bytes;
    Buffer pages;  // L2 partition bits from MeasurePageSides
  };

  KvSides::Place PlaceOf(const void* rows) const;

  std::map<const unsigned char*, Memory> by_start_;
};

}  // namespace stagecoach::kernels::cuda
