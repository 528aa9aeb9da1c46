// Compiled grammars of late, so that requests with the same one compile it once.
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

  // Keeps the grammars that were used last. `max_bytes`: of all that it keeps and all that others
  // still hold of what it gave. `on_compiled` may be empty; what it refuses is refused.
  GrammarCache(std::shared_ptr<const GrammarVocabulary> vocabulary, size_t max_bytes,
               OnCompiled on_compiled = {});

  const std::shared_ptr<const GrammarVocabulary>& vocabulary() const { return vocabulary_; }

  // Compiles (and runs on_compiled), waits for another thread that compiles the same source, or
  // finds it done. Errors as of GrammarVocabulary::Compile and of on_compiled, and
  // RESOURCE_EXHAUSTED when those in use leave no room; they are not kept.
  absl::StatusOr<std::shared_ptr<const Grammar>> Get(const GrammarSource& source);

  // Grammars grow in use: RESOURCE_EXHAUSTED once those in use alone take more than `max_bytes`.
  absl::Status CheckRoom();

 private:
  using Result = absl::StatusOr<std::shared_ptr<const Grammar>>;
  struct Entry {
    uint64_t number;  // of this entry alone
    GrammarSource source;
    std::shared_future<Result> result;
    std::weak_ptr<const Grammar> grammar;  // once compiled
  };

  // The following hold the lock. False: there is no room, but for what is in use and the entry of
  // this number.
  bool MakeRoom(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NoRoom() const;
  size_t HeldBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const size_t max_bytes_;
  const OnCompiled on_compiled_;
  Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // last used first
  // No longer kept, but in use.
  std::vector<std::weak_ptr<const Grammar>> dropped_ ABSL_GUARDED_BY(mutex_);
  uint64_t n_entries_made_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace stagecoach::text
