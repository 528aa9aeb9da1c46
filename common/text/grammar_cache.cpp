#include "common/text/grammar_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace stagecoach::text {

GrammarCache::GrammarCache(std::shared_ptr<const GrammarVocabulary> vocabulary, size_t max_bytes,
                           OnCompiled on_compiled)
    : vocabulary_(std::move(vocabulary)),
      max_bytes_(max_bytes),
      on_compiled_(std::move(on_compiled)) {}

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarCache::Get(const GrammarSource& source) {
  std::promise<Result> promise;
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.source == source; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      const std::shared_future<Result> result = found->result;
      lock.unlock();
      return result.get();
    }
    number = ++n_entries_made_;
    entries_.push_front({number, source, promise.get_future().share(), {}});
  }
  Result result = vocabulary_->Compile(source);
  if (result.ok() && on_compiled_) {
    if (absl::Status status = on_compiled_(source); !status.ok()) result = status;
  }
  {
    MutexLock lock(mutex_);
    const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& one) { return one.number == number; });
    if (result.ok()) {
      entry->grammar = *result;
      if (!MakeRoom(number)) result = NoRoom();
    }
    if (!result.ok()) entries_.erase(entry);
  }
  promise.set_value(result);
  return result;
}

absl::Status GrammarCache::CheckRoom() {
  MutexLock lock(mutex_);
  return MakeRoom(/*number=*/0) ? absl::OkStatus() : NoRoom();
}

absl::Status GrammarCache::NoRoom() const {
  return absl::ResourceExhaustedError(fmt::format(
      "the grammars in use need more than the {} MiB allowed for all grammars; try again later",
      max_bytes_ >> 20));
}

bool GrammarCache::MakeRoom(uint64_t number) {
  for (auto at = entries_.end(); HeldBytes() > max_bytes_;) {
    // The least recently used compiled entry.
    do {
      if (at == entries_.begin()) return false;
      --at;
    } while (at->number == number || at->grammar.expired());
    dropped_.push_back(at->grammar);
    at = entries_.erase(at);
  }
  return true;
}

size_t GrammarCache::HeldBytes() {
  std::erase_if(dropped_, [](const auto& grammar) { return grammar.expired(); });
  size_t n_bytes = 0;
  const auto add = [&n_bytes](const std::weak_ptr<const Grammar>& grammar) {
    if (const auto held = grammar.lock()) n_bytes += held->n_bytes();
  };
  for (const Entry& entry : entries_) add(entry.grammar);
  for (const auto& grammar : dropped_) add(grammar);
  return n_bytes;
}

}  // namespace stagecoach::text
