// Computes the token masks of sequences with a grammar on separate threads, so that they are ready
// together with the logits. A grammar is compiled when the metadata of its registration arrives,
// ahead of its step. The mask for a sequence's next token is started as soon as the previous token
// is sampled. Only the last stage has masks, because every token is known there first, and in
// order.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "common/text/grammar_cache.h"
#include "common/work_counter.h"
#include "common/work_queue.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

// The tokens that may follow in one sequence.
struct TokenMask {
  absl::Status status;          // not OK: the grammar cannot be followed any further
  std::vector<uint32_t> words;  // as SampleRow::allowed
  int32_t n_allowed = 0;        // number of bits set; at least one
};

// The position of one registered sequence in its grammar. Made by GrammarMasks.
class GrammarSequence {
 public:
  // `generated`: tokens generated before the registration.
  GrammarSequence(const v1::SlotGrammar& grammar, std::span<const int32_t> generated);

 private:
  friend class GrammarMasks;

  // Run on a mask thread, one call at a time. Errors are stored in mask_.
  void Begin(std::shared_ptr<text::GrammarCache> grammars);
  void Advance(std::span<const int32_t> tokens);

  absl::Status Compile();
  absl::Status Follow(std::span<const int32_t> tokens);
  void AllowEnd(bool may_end);
  bool IsEnd(int32_t token) const;

  const text::GrammarSource source_;
  const std::vector<int32_t> end_ids_;
  const bool end_late_;
  const std::vector<int32_t> generated_;          // tokens generated before the registration
  std::shared_ptr<text::GrammarCache> grammars_;  // set by Begin; null: no grammars
  std::shared_ptr<const text::Grammar> grammar_;  // keeps the grammar counted as in use
  int n_unchecked_ = 0;  // masks since the last check of the room for grammars
  std::unique_ptr<text::GrammarMatcher> matcher_;
  bool ended_ = false;
  TokenMask mask_;

  Mutex mutex_;
  CondVar changed_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;  // while it is set no mask thread touches the rest
};

class GrammarMasks {
 public:
  // `grammars` may be null; then every grammar fails. `n_threads`: threads that compute masks. One
  // more thread compiles, so that a large grammar does not delay other sequences. `work` grows with
  // each mask.
  GrammarMasks(std::shared_ptr<text::GrammarCache> grammars, int32_t n_slots, int n_threads,
               std::shared_ptr<WorkCounter> work = std::make_shared<WorkCounter>());
  // Does not wait for grammars or masks. Running tasks finish on their own and their results are
  // dropped.
  ~GrammarMasks();

  // Returns the grammars of a step's registrations, in order; null for a registration without one.
  // Starts to compile them, to follow the tokens generated so far, and to compute their masks.
  // `sampling`: by registration. May be called from any thread.
  std::vector<std::shared_ptr<GrammarSequence>> Begin(const StepMetaView& meta,
                                                      std::span<const v1::SlotSampling> sampling);

  // This and the following calls belong to the compute thread. Applies a step's releases and
  // registrations; `begun` is Begin's result for this step.
  void Apply(const StepMetaView& meta, std::span<const std::shared_ptr<GrammarSequence>> begun);

  bool Has(uint32_t slot) const { return slots_[slot] != nullptr; }
  // Whether the slot's mask is computed, so that Await does not block.
  bool IsReady(uint32_t slot) const;
  // Blocks until the slot's mask is computed. After Close, the mask is an error. Valid until the
  // slot's next Accept or Apply. REQUIRES: Has(slot).
  const TokenMask& Await(uint32_t slot);
  // Passes on the slot's next token. Does nothing for a slot without a grammar.
  void Accept(uint32_t slot, int32_t token);

  // Ends all waits for masks. May be called from any thread.
  void Close() { closed_ = true; }

 private:
  const std::shared_ptr<text::GrammarCache> grammars_;
  const std::shared_ptr<WorkCounter> work_;
  std::vector<std::shared_ptr<GrammarSequence>> slots_;
  std::atomic<bool> closed_{false};
  // Tasks own everything they use, because they may outlive this object.
  WorkQueue compiling_{1, "grammars"};
  WorkQueue computing_;
};

}  // namespace stagecoach::worker
