#include "router/text/text_memory.h"

#include <fmt/format.h>
#include <malloc.h>

#include <utility>

#include "router/text/error_code.h"

namespace stagecoach::router {
namespace {

constexpr size_t kLargeTextBytes = 1 << 20;

}  // namespace

absl::StatusOr<TextMemory> TextMemory::Reserve(const ServedModel& model, std::string_view field,
                                               size_t text_bytes) {
  TextMemory memory(model.memory);
  const size_t needed = text_bytes * kTextCost;
  if (!memory.lease_.GrowTo(needed)) {
    const size_t limit = model.memory->limit_bytes();
    if (needed > limit) {
      return absl::InvalidArgumentError(
          fmt::format("{}: {} bytes need about {} MiB to be tokenized, and all requests together "
                      "have {} MiB (--request-memory)",
                      field, text_bytes, needed >> 20, limit >> 20));
    }
    return absl::ResourceExhaustedError(
        "other large requests take the memory for requests (--request-memory); try again later");
  }
  memory.is_large_ = text_bytes >= kLargeTextBytes;
  return memory;
}

TextMemory::~TextMemory() {
  if (is_large_) malloc_trim(0);
}

absl::Status CheckTextLength(const ServedModel& model, std::string_view field, size_t text_bytes) {
  const auto context = static_cast<size_t>(model.max_model_len);
  const size_t most = context * model.longest_token_bytes;
  if (most == 0 || text_bytes <= most) return absl::OkStatus();
  return WithErrorCode(absl::InvalidArgumentError(fmt::format(
                           "{}: {} bytes are more than {} tokens, this model's maximum context "
                           "length, can hold",
                           field, text_bytes, context)),
                       kContextLengthExceeded);
}

}  // namespace stagecoach::router
