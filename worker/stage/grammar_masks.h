// Masks of the sequences that keep to a grammar, computed on threads of their own, so that they are
// ready by the time the logits are: a grammar is compiled when its registration's metadata comes,
// ahead of its step, and the mask for a sequence's next token is begun as soon as the token before
// it is sampled. The last stage alone has them: there every token is known first, and in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/text/grammar_cache.h"
#include "common/work_counter.h"
#include "common/work_queue.h"
#include "worker/stage/step_meta.h"

namespace stagecoach::worker {

// What may follow in one sequence.
struct TokenMask {
  absl::Status status;          // not OK: the grammar cannot be followed any further
  std::vector<uint32_t> words;  // as SampleRow::allowed
  int32_t n_allowed = 0;        // bits that are set; at least one
};

// One registered sequence's place in its grammar. Made by GrammarMasks.
class GrammarSequence {
 public:
  // generated: before the registration.
  GrammarSequence(const v1::SlotGrammar& grammar, std::span<const int32_t> generated);

 private:
  friend class GrammarMasks;

  // On a mask thread, one call at a time. Errors are left in mask_.
  void Begin(std::shared_ptr<text::GrammarCache> grammars);
  void Advance(std::span<const int32_t> tokens);

  absl::Status Compile();
  absl::Status Follow(std::span<const int32_t> tokens);
  void AllowEnd(bool may_end);
  bool IsEnd(int32_t token) const;

  const text::GrammarSource source_;
  const std::vector<int32_t> end_ids_;
  const bool end_late_;
  const std::vector<int32_t> generated_;          // before the registration
  std::shared_ptr<text::GrammarCache> grammars_;  // once begun; null: there are none
  std::shared_ptr<const text::Grammar> grammar_;  // so that it counts as in use
  int n_unchecked_ = 0;                           // masks since room for grammars was checked
  std::unique_ptr<text::GrammarMatcher> matcher_;
  bool ended_ = false;
  TokenMask mask_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;  // guarded by mutex_; while it is set no mask thread touches the rest
};

class GrammarMasks {
 public:
  // `grammars` may be null: every grammar then fails. `n_threads`: of those that compute masks; one
  // more compiles, so that a large grammar keeps nobody else waiting. `work` grows with each mask.
  GrammarMasks(std::shared_ptr<text::GrammarCache> grammars, int32_t n_slots, int n_threads,
               std::shared_ptr<WorkCounter> work = std::make_shared<WorkCounter>());
  // Waits for no grammar and no mask: what is under way goes on by itself, for nobody.
  ~GrammarMasks();

  // The grammars of a step's registrations, in their order, null where there is none. Begins to
  // compile them, to follow what was generated so far, and to compute their masks. Any thread.
  // sampling: by registration.
  std::vector<std::shared_ptr<GrammarSequence>> Begin(const StepMetaView& meta,
                                                      std::span<const v1::SlotSampling> sampling);

  // The rest is the compute thread's. Takes a step's releases and registrations over; `begun` is
  // Begin's result for it.
  void Apply(const StepMetaView& meta, std::span<const std::shared_ptr<GrammarSequence>> begun);

  bool Has(uint32_t slot) const { return slots_[slot] != nullptr; }
  // The slot's mask is computed; Await does not block.
  bool IsReady(uint32_t slot) const;
  // Blocks until it is, or all is closed: then it is an error. Valid until the slot's next Accept
  // or Apply. REQUIRES: Has(slot).
  const TokenMask& Await(uint32_t slot);
  // The slot's next token; does nothing for a slot without a grammar.
  void Accept(uint32_t slot, int32_t token);

  // Nobody waits for a mask any more. Any thread.
  void Close() { closed_ = true; }

 private:
  const std::shared_ptr<text::GrammarCache> grammars_;
  const std::shared_ptr<WorkCounter> work_;
  std::vector<std::shared_ptr<GrammarSequence>> slots_;
  std::atomic<bool> closed_{false};
  // Their tasks own all that they use.
  WorkQueue compiling_{1, "grammars"};
  WorkQueue computing_;
};

}  // namespace stagecoach::worker
