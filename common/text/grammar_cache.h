// A cache of recently used compiled grammars, so that requests with the same grammar compile it
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/text/grammar.h"

namespace stagecoach::text {

// Thread-safe.
class GrammarCache {
 public:
  using OnCompiled = std::function<absl::Status(const GrammarSource&)>;

  // Keeps the most recently used grammars. `max_bytes` bounds the memory of the kept grammars plus
  // those that callers still hold. `on_compiled` may be empty; if it refuses a grammar, Get returns
  // its error.
  GrammarCache(std::shared_ptr<const GrammarVocabulary> vocabulary, size_t max_bytes,
               OnCompiled on_compiled = {});

  const std::shared_ptr<const GrammarVocabulary>& vocabulary() const { return vocabulary_; }

  // Compiles the grammar (and runs on_compiled), waits for another thread that compiles the same
  // source, or finds it in the cache. Errors: those of GrammarVocabulary::Compile and of
  // on_compiled, and RESOURCE_EXHAUSTED if the grammars in use leave no room. Errors are not
  // cached.
  absl::StatusOr<std::shared_ptr<const Grammar>> Get(const GrammarSource& source);

  // Grammars grow while in use. RESOURCE_EXHAUSTED if those in use alone exceed `max_bytes`.
  absl::Status CheckRoom();

 private:
  using Result = absl::StatusOr<std::shared_ptr<const Grammar>>;
  struct Entry {
    uint64_t number;  // unique per entry
    GrammarSource source;
    std::shared_future<Result> result;
    std::weak_ptr<const Grammar> grammar;  // set once compiled
  };

  // Evicts grammars until all fit. Returns false if that fails although only the entry `number` and
  // grammars in use remain.
  bool MakeRoom(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NoRoom() const;
  size_t HeldBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const size_t max_bytes_;
  const OnCompiled on_compiled_;
  Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // last used first
  // Evicted grammars that callers still hold.
  std::vector<std::weak_ptr<const Grammar>> dropped_ ABSL_GUARDED_BY(mutex_);
  uint64_t n_entries_made_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace stagecoach::text
