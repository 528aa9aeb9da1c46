// The journal on disk: an SQLite file in WAL mode that one process has locked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "router/journal/journal_store.h"
#include "router/journal/sqlite.h"

namespace stagecoach::router {

class JournalFile final : public JournalStore {
 public:
  static std::string PathIn(const std::string& folder);
  // Removes the file of a closed journal, and SQLite's files beside it.
  static void Remove(const std::string& folder);
  // Makes the folder and the file if they are missing.
  static absl::StatusOr<std::unique_ptr<JournalFile>> Open(const std::string& folder);

  absl::StatusOr<JournalContent> Read() override;
  absl::Status SetRouter(const v1::RouterRecord& router) override;
  absl::Status SetRestores(uint64_t n_restores) override;
  absl::Status Begin() override;
  // Committed means: in the kernel's memory, so it outlives the process, but maybe not the machine.
  absl::Status Commit() override;
  absl::Status AddStream(uint64_t number, uint64_t first_row, std::string_view record) override;
  absl::Status AddEvents(uint64_t row, uint64_t unix_s, std::string_view events) override;
  absl::Status RemoveStream(uint64_t number) override;
  absl::Status RemoveRowsBefore(uint64_t row) override;
  // Pages of the file that are in use, in bytes.
  absl::StatusOr<uint64_t> UsedBytes() override;

 private:
  explicit JournalFile(Sqlite connection) : connection_(std::move(connection)) {}
  absl::Status Prepare();

  Sqlite connection_;  // outlives its statements
  SqlStatement begin_, commit_, add_stream_, add_events_, remove_stream_, remove_rows_, n_pages_,
      n_free_pages_;
};

// A folder on a local file system, with the file.
class JournalFolder final : public JournalPlace {
 public:
  explicit JournalFolder(std::string folder) : folder_(std::move(folder)) {}

  std::string name() const override { return folder_; }
  absl::StatusOr<std::unique_ptr<JournalStore>> Open() override;
  absl::StatusOr<std::unique_ptr<JournalStore>> OpenNew() override { return Open(); }
  void Discard(std::unique_ptr<JournalStore> store) override;

 private:
  const std::string folder_;
};

}  // namespace stagecoach::router
