// The values of a DirKvStore's folder, for operators.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/kv_store/kv_store_admin.h"

namespace stagecoach::worker {

class DirKvAdmin final : public KvStoreAdmin {
 public:
  static absl::StatusOr<std::unique_ptr<KvStoreAdmin>> Open(std::string path);

  std::string name() const override;
  Age age() const override { return Age::kSinceWritten; }
  absl::Status Scan(const std::function<absl::Status(std::span<const StoredKv>)>& visit) override;
  absl::StatusOr<std::vector<std::optional<std::string>>> Read(
      std::span<const StoredKv> values) override;
  absl::StatusOr<uint64_t> Delete(std::span<const StoredKv> values) override;

 private:
  explicit DirKvAdmin(std::string path) : path_(std::move(path)) {}
  absl::StatusOr<std::vector<StoredKv>> ValuesIn(uint8_t first_byte) const;

  const std::string path_;
};

}  // namespace stagecoach::worker
