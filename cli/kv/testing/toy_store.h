// A store in memory, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/kv_store/kv_store_admin.h"

namespace stagecoach::cli::kv {

class ToyStore final : public worker::KvStoreAdmin {
 public:
  struct Value {
    worker::StoredKv stored;
    std::string bytes;
  };

  void Add(uint8_t block, uint32_t layer, uint64_t bytes,
           std::optional<std::chrono::seconds> age = std::chrono::seconds(0)) {
    Add({.block = {block}, .layer = layer}, std::string(bytes, 'x'), age);
  }
  void Add(const worker::KvKey& key, const std::string& bytes,
           std::optional<std::chrono::seconds> age = std::chrono::seconds(0)) {
    values.push_back({{.key = key, .bytes = bytes.size(), .age = age}, bytes});
  }

  std::string name() const override { return "toy:place"; }
  Age age() const override { return kind; }
  // Two at a time.
  absl::Status Scan(
      const std::function<absl::Status(std::span<const worker::StoredKv>)>& visit) override {
    std::vector<worker::StoredKv> all;
    all.reserve(values.size());
    for (const Value& value : values) all.push_back(value.stored);
    for (std::span<const worker::StoredKv> rest(all); !rest.empty();) {
      const auto part = rest.first(std::min<size_t>(2, rest.size()));
      if (const absl::Status status = visit(part); !status.ok()) return status;
      rest = rest.subspan(part.size());
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::optional<std::string>>> Read(
      std::span<const worker::StoredKv> wanted) override {
    std::vector<std::optional<std::string>> found;
    found.reserve(wanted.size());
    for (const worker::StoredKv& one : wanted) {
      const auto at = Find(one.key);
      found.push_back(at == values.end() ? std::nullopt : std::optional(at->bytes));
    }
    return found;
  }
  absl::StatusOr<uint64_t> Delete(std::span<const worker::StoredKv> old) override {
    const size_t n_before = values.size();
    for (const worker::StoredKv& one : old) {
      if (const auto at = Find(one.key); at != values.end()) values.erase(at);
    }
    return n_before - values.size();
  }

  std::vector<Value> values;
  Age kind = Age::kSinceUsed;

 private:
  std::vector<Value>::iterator Find(const worker::KvKey& key) {
    return std::ranges::find_if(values, [&](const Value& v) { return v.stored.key == key; });
  }
};

}  // namespace stagecoach::cli::kv
