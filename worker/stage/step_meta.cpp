#include "worker/stage/step_meta.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "the layout is read in place");

constexpr size_t kAlignment = 16;

struct Header {
  uint32_t magic;
  uint32_t version;
  uint64_t epoch;
  uint64_t step;
  uint32_t total_bytes;
  uint32_t n_groups;
  uint32_t n_slots;
  uint32_t n_rows;
  uint32_t n_blocks;
  uint32_t n_releases;
  uint32_t n_registrations;
  uint32_t n_words;
  uint32_t n_traces;
  uint16_t header_bytes;
  uint16_t record_bytes;
  uint32_t n_saves;
  uint32_t n_restores;
  uint32_t n_forgotten;
  uint32_t copies_states;
};
static_assert(sizeof(Header) == 80 && std::is_trivially_copyable_v<Header>);
// The lengths of version 4, which all later ones contain.
constexpr uint16_t kFirstHeaderBytes = 64, kFirstRecordBytes = 20;
constexpr uint32_t kCopiesVersion = 5;  // the first with the whole header
constexpr uint32_t kMostSavedState = std::numeric_limits<uint32_t>::max() >> kSaveStateShift;
static_assert(sizeof(Header) % kAlignment == 0 && sizeof(SlotRecord) % 4 == 0);

struct Offsets {
  uint64_t slots, starts, n_tokens, flags, block_ends, blocks, releases, registrations, traces,
      saves, save_blocks, restores, restore_blocks, forgotten, words, end;
};

// Counts are below 2^32: nothing here overflows 64 bits but the products with G, which the caller
// bounds.
Offsets OffsetsFor(const Header& h) {
  uint64_t at = h.header_bytes;
  const auto array = [&at](uint64_t count, uint64_t element_bytes) {
    const uint64_t begin = at;
    at += (count * element_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  };
  const uint64_t n_copied = uint64_t{h.n_groups} + h.copies_states;
  Offsets o;
  o.slots = array(h.n_slots, 4);
  o.starts = array(h.n_slots, 4);
  o.n_tokens = array(h.n_slots, 4);
  o.flags = array(h.n_slots, 4);
  o.block_ends = array(uint64_t{h.n_slots} * h.n_groups, 4);
  o.blocks = array(h.n_blocks, 4);
  o.releases = array(h.n_releases, 4);
  o.registrations = array(h.n_registrations, h.record_bytes);
  o.traces = array(h.n_traces, sizeof(TraceRecord));
  o.saves = array(h.n_saves, sizeof(KvSaveRecord));
  o.save_blocks = array(uint64_t{h.n_saves} * n_copied, 4);
  o.restores = array(h.n_restores, sizeof(KvRestoreRecord));
  o.restore_blocks = array(uint64_t{h.n_restores} * n_copied, 4);
  o.forgotten = array(h.n_forgotten, 8);
  o.words = array(h.n_words, 4);
  o.end = at;
  return o;
}

constexpr uint64_t WordsFor(uint64_t n_bytes) { return (n_bytes + 3) / 4; }

uint64_t RecordWords(const SlotRecord& r) { return r.n_tokens + WordsFor(r.n_sampling_bytes); }

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("step metadata: ", absl::string_view(what.data(), what.size())));
}

bool CopiesKv(const v1::StepPlan& plan) {
  return plan.saves_size() > 0 || plan.restores_size() > 0 || plan.forgotten_fetches_size() > 0;
}

// Whether the plan's copies name saved states: all or none do.
bool CopiesStates(const v1::StepPlan& plan, uint32_t n_groups) {
  const auto more = [n_groups](const auto& copies) {
    return !copies.empty() && std::cmp_equal(copies[0].blocks_size(), n_groups + 1);
  };
  return more(plan.saves()) || more(plan.restores());
}

absl::Status CheckKvCopies(const v1::StepPlan& plan, uint32_t n_copied) {
  const auto n_blocks = static_cast<int>(n_copied);
  for (const v1::KvSave& save : plan.saves()) {
    if (save.key().size() != sizeof(KvSaveRecord::key) ||
        save.tokens_size() != std::ssize(KvSaveRecord{}.tokens) || save.blocks_size() != n_blocks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step ", plan.step(), ": a block to save has no key, tokens or blocks of every group"));
    }
  }
  for (const v1::KvRestore& restore : plan.restores()) {
    if (restore.blocks_size() != n_blocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", plan.step(), ": a block to restore is not for every group"));
    }
  }
  return absl::OkStatus();
}

absl::Status CountPlan(const v1::StepPlan& plan, uint32_t n_groups, Header* h) {
  uint64_t n_rows = 0, n_blocks = 0, n_words = 0;
  for (const v1::SlotDelta& slot : plan.slots()) {
    n_rows += slot.n_tokens();
    if (slot.save_state() > kMostSavedState) {
      return absl::InvalidArgumentError(absl::StrCat("step ", plan.step(), ", slot ", slot.slot(),
                                                     ": there is no state ", slot.save_state()));
    }
    if (slot.new_blocks_size() != 0 && static_cast<uint32_t>(slot.new_blocks_size()) != n_groups) {
      return absl::InvalidArgumentError(absl::StrCat("step ", plan.step(), ", slot ", slot.slot(),
                                                     ": blocks for ", slot.new_blocks_size(),
                                                     " KV groups; the model has ", n_groups));
    }
    for (const v1::BlockIds& ids : slot.new_blocks()) n_blocks += ids.ids_size();
  }
  for (const v1::SlotRegistration& registration : plan.registrations()) {
    n_words += registration.tokens_size() + WordsFor(registration.sampling().ByteSizeLong());
  }
  for (const v1::StepTrace& trace : plan.traces()) {
    if (trace.trace_id().size() != sizeof(TraceRecord::trace_id) ||
        trace.span_id().size() != sizeof(TraceRecord::span_id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", plan.step(), ": a trace's ids are not of 16 and 8 bytes"));
    }
  }
  if (std::cmp_greater(plan.traces_size(), kMostStepTraces)) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", plan.step(), " has more than ", kMostStepTraces, " traces"));
  }
  const bool copies_states = CopiesStates(plan, n_groups);
  SC_RETURN_IF_ERROR(CheckKvCopies(plan, n_groups + (copies_states ? 1 : 0)));
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max() / 8;
  const uint64_t n_copies = uint64_t(plan.saves_size()) + uint64_t(plan.restores_size());
  constexpr uint64_t kMostCopies = kMost / sizeof(KvSaveRecord);
  if (n_rows > kMost || n_blocks > kMost || n_words > kMost || n_copies > kMostCopies) {
    return absl::InvalidArgumentError(absl::StrCat("step ", plan.step(), " is too large"));
  }
  const bool copies_kv = CopiesKv(plan);
  *h = Header{.magic = kStepMetaMagic,
              .version = copies_states ? kStepMetaVersion
                         : copies_kv   ? kCopiesVersion
                                       : kOldestStepMetaVersion,
              .epoch = plan.epoch(),
              .step = plan.step(),
              .n_groups = n_groups,
              .n_slots = static_cast<uint32_t>(plan.slots_size()),
              .n_rows = static_cast<uint32_t>(n_rows),
              .n_blocks = static_cast<uint32_t>(n_blocks),
              .n_releases = static_cast<uint32_t>(plan.release_size()),
              .n_registrations = static_cast<uint32_t>(plan.registrations_size()),
              .n_words = static_cast<uint32_t>(n_words),
              .n_traces = static_cast<uint32_t>(plan.traces_size()),
              .header_bytes = copies_kv ? uint16_t{sizeof(Header)} : kFirstHeaderBytes,
              .record_bytes = sizeof(SlotRecord),
              .n_saves = static_cast<uint32_t>(plan.saves_size()),
              .n_restores = static_cast<uint32_t>(plan.restores_size()),
              .n_forgotten = static_cast<uint32_t>(plan.forgotten_fetches_size()),
              .copies_states = copies_states ? 1u : 0u};
  return absl::OkStatus();
}

// Appends the values of a repeated field; returns the byte after them.
template <typename Repeated>
char* Put(const Repeated& values, char* at) {
  const size_t n_bytes = static_cast<size_t>(values.size()) * sizeof(*values.data());
  if (n_bytes > 0) std::memcpy(at, values.data(), n_bytes);
  return at + n_bytes;
}

// REQUIRES: aligned for T.
template <typename T>
std::span<const T> ArrayAt(std::string_view bytes, uint64_t begin, size_t count) {
  return {reinterpret_cast<const T*>(bytes.data() + begin), count};
}

void PutKvCopies(const v1::StepPlan& plan, const Offsets& o, char* base) {
  char* record_at = base + o.saves;
  char* block_at = base + o.save_blocks;
  for (const v1::KvSave& save : plan.saves()) {
    std::memcpy(record_at, save.key().data(), sizeof(KvSaveRecord::key));
    Put(save.tokens(), record_at + offsetof(KvSaveRecord, tokens));
    const uint64_t owner = save.owner();
    std::memcpy(record_at + offsetof(KvSaveRecord, owner), &owner, sizeof(owner));
    record_at += sizeof(KvSaveRecord);
    block_at = Put(save.blocks(), block_at);
  }
  record_at = base + o.restores;
  block_at = base + o.restore_blocks;
  for (const v1::KvRestore& restore : plan.restores()) {
    const KvRestoreRecord record{
        .fetch = restore.fetch(), .index = restore.index(), .beside = restore.beside() ? 1u : 0u};
    std::memcpy(record_at, &record, sizeof(record));
    record_at += sizeof(record);
    block_at = Put(restore.blocks(), block_at);
  }
  Put(plan.forgotten_fetches(), base + o.forgotten);
}

}  // namespace

absl::Status EncodeStepMeta(const v1::StepPlan& plan, uint32_t n_groups, std::string* out) {
  Header header;
  SC_RETURN_IF_ERROR(CountPlan(plan, n_groups, &header));
  const Offsets o = OffsetsFor(header);
  header.total_bytes = static_cast<uint32_t>(o.end);
  out->assign(o.end, '\0');
  char* const base = out->data();
  std::memcpy(base, &header, header.header_bytes);

  const auto put_word = [base](uint64_t array, size_t index, uint32_t value) {
    std::memcpy(base + array + 4 * index, &value, 4);
  };
  char* block_at = base + o.blocks;
  for (int i = 0; i < plan.slots_size(); ++i) {
    const v1::SlotDelta& slot = plan.slots(i);
    put_word(o.slots, i, slot.slot());
    put_word(o.starts, i, slot.start());
    put_word(o.n_tokens, i, slot.n_tokens());
    put_word(o.flags, i, (slot.sample() ? kSampleFlag : 0) | slot.save_state() << kSaveStateShift);
    for (uint32_t g = 0; g < n_groups; ++g) {
      if (slot.new_blocks_size() > 0) block_at = Put(slot.new_blocks(g).ids(), block_at);
      put_word(o.block_ends, size_t(i) * n_groups + g,
               static_cast<uint32_t>((block_at - base - o.blocks) / 4));
    }
  }
  Put(plan.release(), base + o.releases);
  for (int i = 0; i < plan.traces_size(); ++i) {
    TraceRecord record;
    std::memcpy(record.trace_id, plan.traces(i).trace_id().data(), sizeof(record.trace_id));
    std::memcpy(record.span_id, plan.traces(i).span_id().data(), sizeof(record.span_id));
    std::memcpy(base + o.traces + i * sizeof(record), &record, sizeof(record));
  }

  PutKvCopies(plan, o, base);

  char* const words = base + o.words;
  char* word_at = words;
  for (int i = 0; i < plan.registrations_size(); ++i) {
    const v1::SlotRegistration& registration = plan.registrations(i);
    const v1::SlotSampling& sampling = registration.sampling();
    const SlotRecord record{.slot = registration.slot(),
                            .n_tokens = static_cast<uint32_t>(registration.tokens_size()),
                            .n_prompt = registration.n_prompt(),
                            .words_begin = static_cast<uint32_t>((word_at - words) / 4),
                            .n_sampling_bytes = static_cast<uint32_t>(sampling.ByteSizeLong()),
                            .from_state = registration.from_state()};
    std::memcpy(base + o.registrations + i * sizeof(record), &record, sizeof(record));
    word_at = Put(registration.tokens(), word_at);
    if (!sampling.SerializeToArray(word_at, static_cast<int>(record.n_sampling_bytes))) {
      return absl::InternalError(absl::StrCat("step ", plan.step(),
                                              ": sampling parameters of slot ", record.slot,
                                              " cannot be written"));
    }
    word_at += 4 * WordsFor(record.n_sampling_bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepMetaView> DecodeStepMeta(std::string_view bytes) {
  Header h{};
  if (bytes.size() < kFirstHeaderBytes) return Malformed("shorter than its header");
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment != 0) return Malformed("misaligned");
  std::memcpy(&h, bytes.data(), kFirstHeaderBytes);
  if (h.magic != kStepMetaMagic) return Malformed("wrong magic number");
  if (h.version < kOldestStepMetaVersion || h.version > kStepMetaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step metadata of version ", h.version, "; this worker reads versions ",
        kOldestStepMetaVersion, " to ", kStepMetaVersion,
        ": run the same stagecoach version on all stages, or upgrade the last stage first"));
  }
  if (h.total_bytes != bytes.size()) return Malformed("wrong size");
  if (h.header_bytes < kFirstHeaderBytes || h.header_bytes % kAlignment != 0 ||
      h.header_bytes > bytes.size() || h.record_bytes < kFirstRecordBytes ||
      h.record_bytes % 4 != 0) {
    return Malformed("a header or records of a size that no version has");
  }
  const size_t known_bytes = h.version < kCopiesVersion ? kFirstHeaderBytes : sizeof(h);
  std::memcpy(&h, bytes.data(), std::min<size_t>(h.header_bytes, known_bytes));
  if (h.n_traces > kMostStepTraces) return Malformed("too many traces");
  if (h.copies_states > 1) return Malformed("an unknown kind of copies");
  const uint64_t n_copied = uint64_t{h.n_groups} + h.copies_states;
  for (const uint32_t n : {h.n_slots, h.n_saves, h.n_restores}) {
    if (uint64_t{n} * n_copied > bytes.size()) return Malformed("counts beyond its size");
  }
  const Offsets o = OffsetsFor(h);
  if (o.end != bytes.size()) return Malformed("counts do not match its size");

  const auto words = [&](uint64_t begin, size_t count) {
    return ArrayAt<uint32_t>(bytes, begin, count);
  };
  StepMetaView view{.epoch = h.epoch,
                    .step = h.step,
                    .n_groups = h.n_groups,
                    .n_copied = static_cast<uint32_t>(n_copied),
                    .n_rows = h.n_rows,
                    .slots = words(o.slots, h.n_slots),
                    .starts = words(o.starts, h.n_slots),
                    .n_tokens = words(o.n_tokens, h.n_slots),
                    .flags = words(o.flags, h.n_slots),
                    .block_ends = words(o.block_ends, size_t{h.n_slots} * h.n_groups),
                    .blocks = words(o.blocks, h.n_blocks),
                    .releases = words(o.releases, h.n_releases),
                    .registrations = std::vector<SlotRecord>(h.n_registrations),
                    .traces = ArrayAt<TraceRecord>(bytes, o.traces, h.n_traces),
                    .saves = ArrayAt<KvSaveRecord>(bytes, o.saves, h.n_saves),
                    .save_blocks = words(o.save_blocks, h.n_saves * n_copied),
                    .restores = ArrayAt<KvRestoreRecord>(bytes, o.restores, h.n_restores),
                    .restore_blocks = words(o.restore_blocks, h.n_restores * n_copied),
                    .forgotten_fetches = ArrayAt<uint64_t>(bytes, o.forgotten, h.n_forgotten),
                    .words = words(o.words, h.n_words)};

  for (size_t i = 0; i < view.registrations.size(); ++i) {
    view.registrations[i] = {};
    std::memcpy(&view.registrations[i], bytes.data() + o.registrations + i * h.record_bytes,
                std::min<size_t>(h.record_bytes, sizeof(SlotRecord)));
  }

  uint64_t n_rows = 0;
  for (size_t i = 0; i < view.n_slots(); ++i) {
    if (view.n_tokens[i] == 0) return Malformed("a slot without rows");
    n_rows += view.n_tokens[i];
  }
  if (n_rows != h.n_rows) return Malformed("rows do not add up");
  uint32_t end = 0;
  for (uint32_t block_end : view.block_ends) {
    if (block_end < end) return Malformed("block ranges out of order");
    end = block_end;
  }
  if (end != h.n_blocks) return Malformed("blocks do not add up");
  uint64_t n_words = 0;
  for (const SlotRecord& record : view.registrations) {
    if (record.words_begin != n_words) return Malformed("registrations out of order");
    n_words += RecordWords(record);
    if (n_words > h.n_words) break;
  }
  if (n_words != h.n_words) return Malformed("registrations do not add up");
  return view;
}

uint32_t StepMetaView::n_decode() const {
  return static_cast<uint32_t>(std::count(n_tokens.begin(), n_tokens.end(), 1u));
}

std::span<const int32_t> StepMetaView::tokens(const SlotRecord& r) const {
  return {reinterpret_cast<const int32_t*>(words.data()) + r.words_begin, r.n_tokens};
}
std::string_view StepMetaView::sampling_bytes(const SlotRecord& r) const {
  return {reinterpret_cast<const char*>(tokens(r).data() + r.n_tokens), r.n_sampling_bytes};
}

absl::StatusOr<std::vector<v1::SlotSampling>> ParseSampling(const StepMetaView& meta) {
  std::vector<v1::SlotSampling> all(meta.registrations.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string_view bytes = meta.sampling_bytes(meta.registrations[i]);
    if (!std::in_range<int>(bytes.size()) ||
        !all[i].ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return absl::InvalidArgumentError(absl::StrCat("step ", meta.step, ": slot ",
                                                     meta.registrations[i].slot,
                                                     ": sampling parameters that cannot be read"));
    }
  }
  return all;
}

}  // namespace stagecoach::worker
