// The step metadata that a stage receives from the stage before it.
#include <cstring>
#include <memory>
#include <numeric>

#include "tests/fuzz/fuzz.h"
#include "worker/stage/step_meta.h"

namespace {

// Reads every element, so that the sanitizers check it.
template <typename T>
uint64_t Sum(std::span<const T> values) {
  uint64_t sum = 0;
  for (const T& value : values) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    sum = std::accumulate(bytes, bytes + sizeof(T), sum);
  }
  return sum;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagecoach;
  // Allocates exactly the message's size, so that a read past its end is found; aligned as in the
  // caller.
  void* raw = nullptr;
  if (posix_memalign(&raw, 16, size) != 0) std::abort();
  const std::unique_ptr<char, decltype(&std::free)> bytes(static_cast<char*>(raw), std::free);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  const auto view = worker::DecodeStepMeta({bytes.get(), size});
  fuzz::Accept(view.status());
  if (!view.ok()) return 0;
  volatile uint64_t sum = Sum(view->slots) + Sum(view->starts) + Sum(view->n_tokens) +
                          Sum(view->flags) + Sum(view->block_ends) + Sum(view->blocks) +
                          Sum(view->releases) + Sum(view->registrations) + Sum(view->words);
  for (size_t i = 0; i < view->n_slots(); ++i) {
    for (size_t g = 0; g < view->n_groups; ++g) sum = sum + Sum(view->new_blocks(i, g));
  }
  for (const worker::SlotRecord& record : view->registrations) {
    sum =
        sum + Sum(view->tokens(record)) + Sum(std::span<const char>(view->sampling_bytes(record)));
  }
  const auto sampling = worker::ParseSampling(*view);
  fuzz::Accept(sampling.status());
  return 0;
}
