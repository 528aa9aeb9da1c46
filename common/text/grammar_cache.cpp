#include "common/text/grammar_cache.h"

#include <algorithm>
#include <utility>

namespace stagecoach::text {

GrammarCache::GrammarCache(std::shared_ptr<const GrammarVocabulary> vocabulary, size_t n_kept,
                           OnCompiled on_compiled)
    : vocabulary_(std::move(vocabulary)), n_kept_(n_kept), on_compiled_(std::move(on_compiled)) {}

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarCache::Get(const GrammarSource& source) {
  std::promise<Result> promise;
  uint64_t number = 0;
  {
    std::unique_lock lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.source == source; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      const std::shared_future<Result> result = found->result;
      lock.unlock();
      return result.get();
    }
    number = ++n_entries_made_;
    entries_.push_front({number, source, promise.get_future().share()});
    if (entries_.size() > n_kept_) entries_.pop_back();
  }
  Result result = vocabulary_->Compile(source);
  if (result.ok() && on_compiled_) {
    if (absl::Status status = on_compiled_(source); !status.ok()) result = status;
  }
  if (!result.ok()) {
    std::lock_guard lock(mutex_);
    entries_.remove_if([&](const Entry& entry) { return entry.number == number; });
  }
  promise.set_value(result);
  return result;
}

}  // namespace stagecoach::text
