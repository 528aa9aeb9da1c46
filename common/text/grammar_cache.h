// Compiled grammars of late, so that requests with the same one compile it once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "common/text/grammar.h"

namespace stagecoach::text {

// Thread-safe.
class GrammarCache {
 public:
  using OnCompiled = std::function<absl::Status(const GrammarSource&)>;

  // Keeps the `n_kept` grammars that were used last; each takes from some 100 KB to some 10 MB.
  // `on_compiled` may be empty; what it refuses is refused.
  GrammarCache(std::shared_ptr<const GrammarVocabulary> vocabulary, size_t n_kept,
               OnCompiled on_compiled = {});

  const std::shared_ptr<const GrammarVocabulary>& vocabulary() const { return vocabulary_; }

  // Compiles (and runs on_compiled), waits for another thread that compiles the same source, or
  // finds it done. Errors as of GrammarVocabulary::Compile and of on_compiled; they are not kept.
  absl::StatusOr<std::shared_ptr<const Grammar>> Get(const GrammarSource& source);

 private:
  using Result = absl::StatusOr<std::shared_ptr<const Grammar>>;
  struct Entry {
    uint64_t number;  // of this entry alone
    GrammarSource source;
    std::shared_future<Result> result;
  };

  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const size_t n_kept_;
  const OnCompiled on_compiled_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // guarded by mutex_, as the next; last used first
  uint64_t n_entries_made_ = 0;
};

}  // namespace stagecoach::text
