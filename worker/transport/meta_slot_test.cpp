#include "worker/transport/meta_slot.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <vector>

namespace stagecoach::worker {
namespace {

constexpr size_t kPayload = kMetaSlotBytes - kMetaSlotHeaderBytes - kMetaSlotSealBytes;

std::string Bytes(size_t n) {
  std::string bytes(n, '\0');
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

// Writes all slots of a channel in order.
class Writer {
 public:
  explicit Writer(uint64_t epoch) : epoch_(epoch) {}
  std::vector<std::vector<char>> Write(uint64_t step, const std::string& message) {
    std::vector<std::vector<char>> slots;
    for (size_t part = 0; part < MetaSlotCount(message.size()); ++part) {
      slots.emplace_back(kMetaSlotBytes, '\x5a');
      WriteMetaSlot(epoch_, step, sequence_++, message, part, slots.back().data());
    }
    return slots;
  }

 private:
  const uint64_t epoch_;
  uint64_t sequence_ = 0;
};

}  // namespace

TEST_CASE("meta slot: messages of every size are read back, over as many slots as they need") {
  Writer writer(3);
  MetaSlotReader reader(3);
  uint64_t step = 0;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{64}, kPayload - 1, kPayload, kPayload + 1,
                         2 * kPayload, 3 * kPayload + 17}) {
    const std::string message = Bytes(n);
    const auto slots = writer.Write(++step, message);
    CHECK(slots.size() == std::max<size_t>(1, (n + kPayload - 1) / kPayload));
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto taken = reader.Take(slots[i]);
      REQUIRE(taken.ok());
      REQUIRE(taken->has_value() == (i + 1 == slots.size()));
      if (!taken->has_value()) continue;
      CHECK((*taken)->step == step);
      CHECK((*taken)->payload == message);
    }
  }
}

TEST_CASE("meta slot: a truncated slot is not a message, whatever it contained before") {
  Writer writer(3);
  MetaSlotReader reader(3);
  const std::string first = Bytes(1000), second(1000, 'x');
  std::vector<char> slot = writer.Write(1, first).front();
  REQUIRE(reader.Take(slot).ok());
  // The second message arrives in the same slot and is cut off after some of its bytes.
  const std::vector<char> whole = writer.Write(2, second).front();
  for (const size_t n_bytes : {kMetaSlotHeaderBytes, kMetaSlotHeaderBytes + 999,
                               kMetaSlotHeaderBytes + 1000, kMetaSlotHeaderBytes + 1008}) {
    std::copy_n(whole.begin(), n_bytes, slot.begin());
    CHECK(absl::IsDataLoss(reader.Take(slot).status()));
  }
  REQUIRE(reader.Take(whole).ok());
}

TEST_CASE("meta slot: the layout matches the header file") {
  std::vector<char> slot(kMetaSlotBytes);
  const std::string message = Bytes(100);
  CHECK(WriteMetaSlot(0x1122334455667788, 9, 7, message, 0, slot.data()) == 180);
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, slot.data() + at, 4);
    return value;
  };
  CHECK(std::memcmp(slot.data(), "SCMS", 4) == 0);
  CHECK(word(4) == kMetaSlotVersion);
  CHECK(word(8) == 0x55667788);
  CHECK(word(12) == 0x11223344);
  CHECK(word(16) == 9);
  CHECK(word(24) == 7);
  CHECK(word(32) == 100);
  CHECK(word(36) == 0);
  CHECK(word(40) == 1);
  CHECK(word(44) == 100);
  CHECK(std::memcmp(slot.data() + 64, message.data(), message.size()) == 0);
  CHECK(std::memcmp(slot.data() + 164, slot.data() + 8, 8) == 0);
  CHECK(word(172) == 7);
}

TEST_CASE("meta slot: a gap is data loss, and the error asks for a snapshot") {
  Writer writer(1);
  MetaSlotReader reader(1);
  REQUIRE(reader.Take(writer.Write(1, "one")[0]).ok());
  writer.Write(2, "two");
  const auto taken = reader.Take(writer.Write(3, "three")[0]);
  CHECK(taken.status().code() == absl::StatusCode::kDataLoss);
  CHECK(taken.status().message().find("snapshot") != absl::string_view::npos);
  CHECK(taken.status().message().find("restart the router") != absl::string_view::npos);
}

TEST_CASE("meta slot: a lost part, another epoch and another version give different errors") {
  Writer writer(5);
  auto slots = writer.Write(1, Bytes(2 * kPayload));
  MetaSlotReader reader(5);
  CHECK(reader.Take(slots[1]).status().code() == absl::StatusCode::kDataLoss);
  CHECK(MetaSlotReader(6).Take(slots[0]).status().code() == absl::StatusCode::kFailedPrecondition);
  slots[0][4] = kMetaSlotVersion - 1;
  CHECK(MetaSlotReader(5).Take(slots[0]).status().code() == absl::StatusCode::kFailedPrecondition);
  slots[0][0] = 0;
  CHECK(MetaSlotReader(5).Take(slots[0]).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("meta slot: inconsistent counts are refused") {
  for (const size_t field : {size_t{32}, size_t{36}, size_t{40}, size_t{44}}) {
    std::vector<char> slot(kMetaSlotBytes);
    WriteMetaSlot(1, 1, 0, Bytes(100), 0, slot.data());
    slot[field + 3] = 0x40;
    CHECK(MetaSlotReader(1).Take(slot).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace stagecoach::worker
