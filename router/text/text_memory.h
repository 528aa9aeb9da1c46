// Reserves memory for rendering and tokenizing a prompt, which takes many times its text.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/access/memory_budget.h"
#include "router/text/served_model.h"

namespace stagecoach::router {

// Peak memory while one byte of text is rendered or tokenized (measured: see
// tests/bench/bombs.py).
inline constexpr size_t kTextCost = 48;

// Holds the memory for a text. The destructor returns it, and returns the freed pages of a large
// text to the system, which malloc would keep.
class TextMemory {
 public:
  // `field` names the text in errors. INVALID_ARGUMENT: the text needs more than all of the
  // budget. RESOURCE_EXHAUSTED: other requests hold the memory now.
  static absl::StatusOr<TextMemory> Reserve(const ServedModel& model, std::string_view field,
                                            size_t text_bytes);
  TextMemory(TextMemory&&) = default;
  TextMemory& operator=(TextMemory&&) = default;
  ~TextMemory();

 private:
  explicit TextMemory(MemoryBudget* budget) : lease_(budget) {}

  MemoryBudget::Lease lease_;
  bool is_large_ = false;
};

// INVALID_ARGUMENT if the tokens of a text of this length never fit in the context, so that nobody
// needs to tokenize it.
absl::Status CheckTextLength(const ServedModel& model, std::string_view field, size_t text_bytes);

}  // namespace stagecoach::router
