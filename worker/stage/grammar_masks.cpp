#include "worker/stage/grammar_masks.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

// Within this time, a wait ends after Close.
constexpr auto kCloseInterval = std::chrono::milliseconds(50);

// A mask adds only a few states to a lexer, so the memory is checked rarely.
constexpr int kMasksPerCheck = 64;

text::GrammarSource Source(const v1::SlotGrammar& grammar) {
  return {.kind = static_cast<text::GrammarKind>(grammar.kind()),
          .text = grammar.source(),
          .any_whitespace = grammar.any_whitespace(),
          .begins_after = grammar.begins_after()};
}

}  // namespace

GrammarSequence::GrammarSequence(const v1::SlotGrammar& grammar, std::span<const int32_t> generated)
    : source_(Source(grammar)),
      end_ids_(grammar.end_ids().begin(), grammar.end_ids().end()),
      end_late_(grammar.end_late()),
      generated_(generated.begin(), generated.end()) {}

void GrammarSequence::Begin(std::shared_ptr<text::GrammarCache> grammars) {
  grammars_ = std::move(grammars);
  mask_.status =
      grammars_ != nullptr
          ? Compile()
          : absl::FailedPreconditionError("this worker received no vocabulary for grammars");
  Advance(generated_);
}

absl::Status GrammarSequence::Compile() {
  mask_.words.resize(grammars_->vocabulary()->n_mask_words());
  SC_ASSIGN_OR_RETURN(grammar_, grammars_->Get(source_));
  SC_ASSIGN_OR_RETURN(matcher_, grammar_->NewMatcher());
  return absl::OkStatus();
}

void GrammarSequence::Advance(std::span<const int32_t> tokens) {
  if (mask_.status.ok()) mask_.status = Follow(tokens);
  // Only ready_ needs the lock: nobody reads mask_ before ready_ is set.
  MutexLock lock(mutex_);
  ready_ = true;
  changed_.notify_all();
}

absl::Status GrammarSequence::Follow(std::span<const int32_t> tokens) {
  const auto end =
      std::find_if(tokens.begin(), tokens.end(), [this](int32_t token) { return IsEnd(token); });
  ended_ = ended_ || end != tokens.end();
  bool may_end = true;
  if (ended_) {
    // This row was planned before the end was known. Its token is dropped, but one must be sampled.
    std::fill(mask_.words.begin(), mask_.words.end(), 0);
  } else {
    SC_RETURN_IF_ERROR(matcher_->Consume(tokens));
    SC_ASSIGN_OR_RETURN(may_end, matcher_->Mask(mask_.words));
    if (++n_unchecked_ >= kMasksPerCheck) {
      n_unchecked_ = 0;
      SC_RETURN_IF_ERROR(grammars_->CheckRoom());
    }
  }
  AllowEnd(may_end);
  if (mask_.n_allowed == 0) return absl::InternalError("the grammar allows no token");
  return absl::OkStatus();
}

void GrammarSequence::AllowEnd(bool may_end) {
  const auto bit = [](int32_t id) { return uint32_t{1} << (id % 32); };
  // The checkpoint's EOS ids are set in the mask by the grammar; they are among the end ids.
  for (const int32_t id : end_ids_) mask_.words[id / 32] &= ~bit(id);
  int32_t n = 0;
  for (const uint32_t word : mask_.words) n += std::popcount(word);
  if (may_end && !(end_late_ && n > 0)) {
    for (const int32_t id : end_ids_) {
      uint32_t& word = mask_.words[id / 32];
      n += (word & bit(id)) == 0 ? 1 : 0;  // an id may be listed twice
      word |= bit(id);
    }
  }
  mask_.n_allowed = n;
}

bool GrammarSequence::IsEnd(int32_t token) const {
  return std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end();
}

GrammarMasks::GrammarMasks(std::shared_ptr<text::GrammarCache> grammars, int32_t n_slots,
                           int n_threads, std::shared_ptr<WorkCounter> work)
    : grammars_(std::move(grammars)),
      work_(std::move(work)),
      slots_(n_slots),
      computing_(n_threads, "masks") {}

GrammarMasks::~GrammarMasks() {
  compiling_.Abandon();
  computing_.Abandon();
}

std::vector<std::shared_ptr<GrammarSequence>> GrammarMasks::Begin(
    const StepMetaView& meta, std::span<const v1::SlotSampling> sampling) {
  SC_CHECK(sampling.size() == meta.registrations.size());
  std::vector<std::shared_ptr<GrammarSequence>> begun(meta.registrations.size());
  for (size_t i = 0; i < begun.size(); ++i) {
    if (!sampling[i].has_grammar()) continue;
    const SlotRecord& record = meta.registrations[i];
    begun[i] = std::make_shared<GrammarSequence>(sampling[i].grammar(),
                                                 meta.tokens(record).subspan(record.n_prompt));
    compiling_.Post([grammars = grammars_, work = work_, sequence = begun[i]] {
      sequence->Begin(grammars);
      ++*work;
    });
  }
  return begun;
}

void GrammarMasks::Apply(const StepMetaView& meta,
                         std::span<const std::shared_ptr<GrammarSequence>> begun) {
  SC_CHECK(begun.size() == meta.registrations.size());
  for (const uint32_t slot : meta.releases) slots_[slot] = nullptr;
  for (size_t i = 0; i < begun.size(); ++i) slots_[meta.registrations[i].slot] = begun[i];
}

bool GrammarMasks::IsReady(uint32_t slot) const {
  MutexLock lock(slots_[slot]->mutex_);
  return slots_[slot]->ready_;
}

const TokenMask& GrammarMasks::Await(uint32_t slot) {
  GrammarSequence& sequence = *slots_[slot];
  MutexLock lock(sequence.mutex_);
  while (!sequence.changed_.wait_for(
      lock, kCloseInterval,
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sequence.mutex_) { return sequence.ready_; })) {
    if (!closed_) continue;
    static const auto* const kClosed = new TokenMask{absl::CancelledError("the epoch has ended")};
    return *kClosed;
  }
  return sequence.mask_;
}

void GrammarMasks::Accept(uint32_t slot, int32_t token) {
  const std::shared_ptr<GrammarSequence>& sequence = slots_[slot];
  if (sequence == nullptr || closed_) return;
  {
    MutexLock lock(sequence->mutex_);
    SC_CHECK(sequence->ready_);  // a token is sampled only after its mask is ready
    sequence->ready_ = false;
  }
  computing_.Post([work = work_, sequence, token] {
    sequence->Advance({&token, 1});
    ++*work;
  });
}

}  // namespace stagecoach::worker
