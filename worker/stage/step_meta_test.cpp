#include "worker/stage/step_meta.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stagecoach/v1/step.pb.h"
#include "worker/stage/plan_checker.h"

namespace stagecoach::worker {
namespace {

v1::StepPlan SamplePlan() {
  v1::StepPlan plan;
  plan.set_epoch(0x123456789);
  plan.set_step(1);
  plan.add_release(5);
  for (uint32_t slot : {3u, 1u}) {
    auto* registration = plan.add_registrations();
    registration->set_slot(slot);
    for (uint32_t i = 0; i < 20 + slot; ++i) registration->add_tokens(static_cast<int32_t>(i));
    registration->set_n_prompt(18);
    auto* sampling = registration->mutable_sampling();
    sampling->set_temperature(0.5f);
    sampling->set_top_k(40);
    sampling->set_top_p(0.9f);
    sampling->set_min_p(0.1f);
    sampling->set_seed(0xfedcba9876543210);
    sampling->set_presence_penalty(0.1f);
    sampling->set_frequency_penalty(0.2f);
    sampling->set_repetition_penalty(1.1f);
    sampling->set_min_tokens(2);
    sampling->add_stop_ids(9);
    sampling->add_bias_ids(4);
    sampling->add_bias_ids(5);
    sampling->add_bias_values(1.5f);
    sampling->add_bias_values(-2.5f);
    sampling->set_n_logprobs(3);
    sampling->set_n_prompt_logprobs(-1);
    if (slot == 1) continue;
    auto* grammar = sampling->mutable_grammar();
    grammar->set_kind(v1::GRAMMAR_KIND_LARK);
    grammar->set_source("start: /a/");
    grammar->set_end_late(true);
    grammar->set_begins_after("</think>");
    grammar->add_end_ids(1);
    grammar->add_end_ids(2);
  }
  for (uint32_t slot : {1u, 3u}) {
    auto* delta = plan.add_slots();
    delta->set_slot(slot);
    delta->set_n_tokens(20 + slot);
    delta->set_sample(slot == 3);
    delta->add_new_blocks()->add_ids(slot);
    delta->mutable_new_blocks(0)->add_ids(7);
    delta->add_new_blocks()->add_ids(10 + slot);
    delta->mutable_new_blocks(1)->add_ids(2);
  }
  return plan;
}

std::string Encoded(const v1::StepPlan& plan) {
  std::string bytes;
  REQUIRE(EncodeStepMeta(plan, 2, &bytes).ok());
  return bytes;
}

template <typename T>
std::vector<T> ToVector(std::span<const T> span) {
  return {span.begin(), span.end()};
}

TEST_CASE("an encoded plan is read back in place") {
  const std::string bytes = Encoded(SamplePlan());
  const auto view = DecodeStepMeta(bytes);
  REQUIRE(view.ok());
  CHECK(view->epoch == 0x123456789);
  CHECK(view->step == 1);
  CHECK(view->n_groups == 2);
  CHECK(view->n_rows == 44);
  CHECK(ToVector(view->slots) == std::vector<uint32_t>{1, 3});
  CHECK(ToVector(view->n_tokens) == std::vector<uint32_t>{21, 23});
  CHECK_FALSE(view->samples(0));
  CHECK(view->samples(1));
  CHECK(ToVector(view->new_blocks(0, 0)) == std::vector<uint32_t>{1, 7});
  CHECK(ToVector(view->new_blocks(0, 1)) == std::vector<uint32_t>{11, 2});
  CHECK(ToVector(view->new_blocks(1, 1)) == std::vector<uint32_t>{13, 2});
  CHECK(ToVector(view->releases) == std::vector<uint32_t>{5});
  const SlotRecord& record = view->registrations[1];
  CHECK(record.slot == 1);
  CHECK(record.n_prompt == 18);
  CHECK(view->tokens(record).size() == 21);
  CHECK(view->tokens(record)[20] == 20);
  const auto sampling = ParseSampling(*view);
  REQUIRE(sampling.ok());
  REQUIRE(sampling->size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK((*sampling)[i].SerializeAsString() ==
          SamplePlan().registrations(i).sampling().SerializeAsString());
  }
}

// The same message as a release writes it that has appended fields to the header and the records.
std::string Appended(const std::string& bytes, size_t n_header, size_t n_record) {
  const auto word = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, bytes.data() + at, 4);
    return value;
  };
  const auto padded = [](size_t n) { return (n + 15) / 16 * 16; };
  const size_t n_slots = word(32), n_groups = word(28), n_registrations = word(48);
  const size_t records_at = 64 + 4 * padded(4 * n_slots) + padded(4 * n_slots * n_groups) +
                            padded(4 * size_t{word(40)}) + padded(4 * size_t{word(44)});
  std::string out =
      bytes.substr(0, 64) + std::string(n_header, '\x11') + bytes.substr(64, records_at - 64);
  std::string records;
  for (size_t i = 0; i < n_registrations; ++i) {
    records += bytes.substr(records_at + i * sizeof(SlotRecord), sizeof(SlotRecord)) +
               std::string(n_record, '\x22');
  }
  records.resize(padded(records.size()), '\0');
  out += records + bytes.substr(records_at + padded(n_registrations * sizeof(SlotRecord)));
  const auto total = static_cast<uint32_t>(out.size());
  std::memcpy(out.data() + 24, &total, 4);
  const uint16_t lengths[] = {static_cast<uint16_t>(64 + n_header),
                              static_cast<uint16_t>(sizeof(SlotRecord) + n_record)};
  std::memcpy(out.data() + 60, lengths, sizeof(lengths));
  return out;
}

TEST_CASE("fields that another release appends are skipped") {
  const std::string bytes = Encoded(SamplePlan());
  CHECK(Appended(bytes, 0, 0) == bytes);
  const auto ours = DecodeStepMeta(bytes);
  REQUIRE(ours.ok());
  for (const auto& [n_header, n_record] : {std::pair(16, 0), std::pair(0, 4), std::pair(32, 12)}) {
    const std::string theirs = Appended(bytes, n_header, n_record);
    const auto view = DecodeStepMeta(theirs);
    REQUIRE(view.ok());
    CHECK(view->step == ours->step);
    CHECK(ToVector(view->slots) == ToVector(ours->slots));
    CHECK(ToVector(view->new_blocks(1, 1)) == ToVector(ours->new_blocks(1, 1)));
    REQUIRE(view->registrations.size() == 2);
    for (size_t i = 0; i < 2; ++i) {
      const SlotRecord& a = view->registrations[i];
      const SlotRecord& b = ours->registrations[i];
      CHECK(std::memcmp(&a, &b, sizeof(a)) == 0);
      CHECK(view->sampling_bytes(a) == ours->sampling_bytes(b));
    }
  }
}

TEST_CASE("unreadable sampling parameters are refused, but a stage can pass them on") {
  const v1::StepPlan plan = SamplePlan();
  std::string bytes = Encoded(plan);
  const size_t at = bytes.rfind(plan.registrations(1).sampling().SerializeAsString());
  REQUIRE(at != std::string::npos);
  bytes[at] = '\x07';  // no such wire type
  const auto view = DecodeStepMeta(bytes);
  REQUIRE(view.ok());
  const absl::Status status = ParseSampling(*view).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "step 1: slot 1: sampling parameters that cannot be read");
}

TEST_CASE("a registration without sampling parameters gives none") {
  v1::StepPlan plan = SamplePlan();
  plan.mutable_registrations(0)->clear_sampling();
  const std::string bytes = Encoded(plan);
  const auto view = DecodeStepMeta(bytes);
  REQUIRE(view.ok());
  CHECK(view->registrations[0].n_sampling_bytes == 0);
  CHECK(ParseSampling(*view).value()[0].SerializeAsString().empty());
}

TEST_CASE("a traced request's ids are sent with the step") {
  v1::StepPlan plan = SamplePlan();
  plan.add_traces()->set_trace_id("0123456789abcdef");
  plan.mutable_traces(0)->set_span_id("01234567");
  const std::string bytes = Encoded(plan);
  const auto view = DecodeStepMeta(bytes);
  REQUIRE(view.ok());
  REQUIRE(view->traces.size() == 1);
  CHECK(std::memcmp(view->traces[0].trace_id, "0123456789abcdef", 16) == 0);
  CHECK(std::memcmp(view->traces[0].span_id, "01234567", 8) == 0);
  CHECK(ParseSampling(*view).value()[0].grammar().begins_after() == "</think>");

  std::string out;
  plan.mutable_traces(0)->set_span_id("short");
  CHECK(absl::IsInvalidArgument(EncodeStepMeta(plan, 2, &out)));
  plan.clear_traces();
  for (uint32_t i = 0; i <= kMostStepTraces; ++i) {
    plan.add_traces()->set_trace_id("0123456789abcdef");
    plan.mutable_traces(static_cast<int>(i))->set_span_id("01234567");
  }
  CHECK(absl::IsInvalidArgument(EncodeStepMeta(plan, 2, &out)));
}

v1::StepPlan PlanWithKvCopies() {
  v1::StepPlan plan = SamplePlan();
  for (uint32_t i = 0; i < 3; ++i) {
    v1::KvSave& save = *plan.add_saves();
    save.set_key(std::string(15, 'k') + static_cast<char>('0' + i));
    for (int32_t t = 0; t < 16; ++t) save.add_tokens(1000 * static_cast<int32_t>(i) + t);
    save.add_blocks(i);
    save.add_blocks(20 + i);
    save.set_owner(0x500000000 + i);
  }
  v1::KvRestore& restore = *plan.add_restores();
  restore.set_fetch(0x100000002);
  restore.set_index(6);
  restore.add_blocks(9);
  restore.add_blocks(kNoKvBlock);
  plan.add_forgotten_fetches(0x300000004);
  return plan;
}

TEST_CASE("copies of KV blocks are sent with the step") {
  const std::string bytes = Encoded(PlanWithKvCopies());
  const auto view = DecodeStepMeta(bytes);
  REQUIRE(view.ok());
  REQUIRE(view->saves.size() == 3);
  CHECK(std::memcmp(view->saves[2].key, "kkkkkkkkkkkkkkk2", 16) == 0);
  CHECK(view->saves[2].tokens[15] == 2015);
  CHECK(view->saves[2].owner == 0x500000002);
  CHECK(ToVector(view->save_blocks) == std::vector<uint32_t>{0, 20, 1, 21, 2, 22});
  REQUIRE(view->restores.size() == 1);
  CHECK(view->restores[0].fetch == 0x100000002);
  CHECK(view->restores[0].index == 6);
  CHECK(ToVector(view->restore_blocks) == std::vector<uint32_t>{9, kNoKvBlock});
  CHECK(ToVector(view->forgotten_fetches) == std::vector<uint64_t>{0x300000004});
  CHECK(view->registrations[1].n_prompt == 18);

  std::string out;
  v1::StepPlan plan = PlanWithKvCopies();
  plan.mutable_saves(0)->set_key("short");
  CHECK(absl::IsInvalidArgument(EncodeStepMeta(plan, 2, &out)));
  plan = PlanWithKvCopies();
  plan.mutable_restores(0)->mutable_blocks()->RemoveLast();
  CHECK(absl::IsInvalidArgument(EncodeStepMeta(plan, 2, &out)));
}

v1::StepPlan PlanWithStateCopies() {
  v1::StepPlan plan = PlanWithKvCopies();
  for (v1::KvSave& save : *plan.mutable_saves()) save.add_blocks(kNoKvBlock);
  plan.mutable_saves(1)->mutable_blocks()->Clear();
  for (const uint32_t number : {kNoKvBlock, kNoKvBlock, 70u}) {
    plan.mutable_saves(1)->add_blocks(number);
  }
  plan.mutable_restores(0)->add_blocks(71);
  return plan;
}

TEST_CASE("copies of saved states are sent with those of blocks") {
  const std::string bytes = Encoded(PlanWithStateCopies());
  const auto view = DecodeStepMeta(bytes);
  REQUIRE(view.ok());
  CHECK(ToVector(view->saved_blocks(2)) == std::vector<uint32_t>{2, 22});
  CHECK(view->saved_state(0) == kNoKvBlock);
  CHECK(ToVector(view->saved_blocks(1)) == std::vector<uint32_t>{kNoKvBlock, kNoKvBlock});
  CHECK(view->saved_state(1) == 70);
  CHECK(ToVector(view->restored_blocks(0)) == std::vector<uint32_t>{9, kNoKvBlock});
  CHECK(view->restored_state(0) == 71);
  CHECK(ToVector(view->forgotten_fetches) == std::vector<uint64_t>{0x300000004});
  CHECK(view->registrations[1].n_prompt == 18);
  const std::string without = Encoded(PlanWithKvCopies());
  CHECK(DecodeStepMeta(without)->saved_state(1) == kNoKvBlock);

  std::string out;
  v1::StepPlan plan = PlanWithStateCopies();
  plan.mutable_saves(2)->mutable_blocks()->RemoveLast();
  CHECK(absl::IsInvalidArgument(EncodeStepMeta(plan, 2, &out)));
}

TEST_CASE("a plan without copies of KV blocks has the form that an older stage reads") {
  const auto version = [](const v1::StepPlan& plan) { return Encoded(plan)[4]; };
  CHECK(version(SamplePlan()) == 4);
  CHECK(version(PlanWithKvCopies()) == 5);
  CHECK(version(PlanWithStateCopies()) == 6);
}

TEST_CASE("arrays start at multiples of 16 bytes, as the counts say") {
  const std::string bytes = Encoded(SamplePlan());
  const auto view = DecodeStepMeta(bytes);
  REQUIRE(view.ok());
  const auto offset = [&](const auto& span) {
    return reinterpret_cast<const char*>(span.data()) - bytes.data();
  };
  CHECK(offset(view->slots) == 64);
  CHECK(offset(view->starts) == 80);
  CHECK(offset(view->n_tokens) == 96);
  CHECK(offset(view->flags) == 112);
  CHECK(offset(view->block_ends) == 128);
  CHECK(offset(view->blocks) == 144);
  CHECK(offset(view->releases) == 176);
  CHECK(std::memcmp(bytes.data() + 192, view->registrations.data(), 2 * sizeof(SlotRecord)) == 0);
  CHECK(offset(view->words) == 240);
}

TEST_CASE("recurrent states travel with slots and registrations") {
  v1::StepPlan plan = SamplePlan();
  plan.mutable_slots(0)->set_save_state(77);
  plan.mutable_registrations(1)->set_from_state(9);
  const std::string bytes = Encoded(plan);
  const auto view = DecodeStepMeta(bytes);
  REQUIRE(view.ok());
  CHECK(view->save_state(0) == 77);
  CHECK(view->samples(0) == plan.slots(0).sample());
  CHECK(view->save_state(1) == 0);
  CHECK(view->registrations[0].from_state == 0);
  CHECK(view->registrations[1].from_state == 9);
  std::string none;
  plan.mutable_slots(0)->set_save_state(0x80000000);
  CHECK(absl::IsInvalidArgument(EncodeStepMeta(plan, 2, &none)));
}

TEST_CASE("an empty plan can be encoded") {
  v1::StepPlan plan;
  plan.set_step(3);
  const std::string bytes = Encoded(plan);
  CHECK(bytes.size() == 64);
  const auto view = DecodeStepMeta(bytes);
  REQUIRE(view.ok());
  CHECK(view->n_slots() == 0);
  CHECK(view->n_rows == 0);
}

TEST_CASE("a plan that cannot be encoded is refused") {
  std::string bytes;
  v1::StepPlan plan = SamplePlan();
  CHECK(absl::IsInvalidArgument(EncodeStepMeta(plan, 1, &bytes)));
  plan.mutable_slots(0)->set_n_tokens(0xffffffff);
  CHECK(absl::IsInvalidArgument(EncodeStepMeta(plan, 2, &bytes)));
}

TEST_CASE("truncated, padded and foreign bytes are refused") {
  const std::string bytes = Encoded(SamplePlan());
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::string cut = bytes.substr(0, n);
    CHECK_FALSE(DecodeStepMeta(cut).ok());
  }
  CHECK_FALSE(DecodeStepMeta(bytes + std::string(16, '\0')).ok());
  std::string other_version = bytes;
  other_version[4] = 1;
  CHECK(absl::IsFailedPrecondition(DecodeStepMeta(other_version).status()));
  for (const size_t length_at : {60, 62}) {
    std::string other_length = bytes;
    other_length[length_at] = static_cast<char>(other_length[length_at] + 4);
    CHECK(absl::IsInvalidArgument(DecodeStepMeta(other_length).status()));
  }
  std::string shifted = " " + bytes;
  CHECK_FALSE(DecodeStepMeta(std::string_view(shifted).substr(1)).ok());
}

// Touches everything that a view gives access to.
uint64_t ReadAll(const StepMetaView& view) {
  uint64_t sum = 0;
  const auto add = [&sum](const auto& values) {
    for (const auto& value : values) {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      sum += bits;
    }
  };
  for (size_t i = 0; i < view.n_slots(); ++i) {
    sum += view.samples(i);
    for (uint32_t g = 0; g < view.n_groups; ++g) add(view.new_blocks(i, g));
  }
  add(view.slots);
  add(view.starts);
  add(view.releases);
  add(view.save_blocks);
  add(view.restore_blocks);
  add(view.forgotten_fetches);
  for (const KvSaveRecord& save : view.saves) add(save.tokens);
  for (const SlotRecord& record : view.registrations) {
    add(view.tokens(record));
    for (const char c : view.sampling_bytes(record)) sum += static_cast<uint8_t>(c);
  }
  return sum;
}

TEST_CASE("modified bytes are refused or give a view that stays inside them") {
  const std::string plain = Encoded(SamplePlan()), copies = Encoded(PlanWithStateCopies());
  std::mt19937 random(1);
  StageLimits limits{.vocab_size = 100, .n_kv_groups = 2};
  limits.config.set_max_batched_tokens(64);
  limits.config.set_max_sequences(6);
  limits.config.set_max_model_len(64);
  limits.config.set_max_logprobs(20);
  uint64_t sum = 0;
  int n_decoded = 0, n_parsed = 0;
  for (int round = 0; round < 100000; ++round) {
    // A new allocation each time, of the very size: a read beyond it is seen by the sanitizer.
    const std::string& good = round % 2 == 0 ? plain : copies;
    std::string bytes = good;
    if (random() % 4 == 0) bytes.resize(random() % (good.size() + 64));
    for (uint32_t n = random() % 4; n > 0 && !bytes.empty(); --n) {
      const size_t at =
          random() % (random() % 2 == 0 ? std::min<size_t>(80, bytes.size()) : bytes.size());
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] + (random() % 2 == 0 ? 1 : -1));
          break;
        case 2:
          bytes[at] = static_cast<char>(0xff);
          break;
      }
    }
    bytes.shrink_to_fit();
    const auto view = DecodeStepMeta(bytes);
    if (!view.ok()) continue;
    ++n_decoded;
    sum += ReadAll(*view);
    PlanChecker checker(limits, view->epoch, {64, 64});
    const auto sampling = ParseSampling(*view);
    if (!sampling.ok()) continue;
    ++n_parsed;
    sum += static_cast<uint64_t>(checker.Check(*view, *sampling).code());
  }
  CHECK(n_decoded > 0);
  CHECK(n_parsed > 0);
  CHECK(sum > 0);
}

}  // namespace
}  // namespace stagecoach::worker
