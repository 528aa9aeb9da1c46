#include "router/journal/journal_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "common/status.h"

namespace stagecoach::router {
namespace {

constexpr uint64_t kFormat = 1;
constexpr uint64_t kPageBytes = 4096;

// The lock must come first: it is taken with the first access and then kept, and keeps SQLite's
// index of the WAL in this process's memory. Synchronous writes would take milliseconds per step.
constexpr char kSetUp[] =
    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA page_size = 4096; PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = OFF; PRAGMA journal_size_limit = 16777216;"
    "BEGIN EXCLUSIVE;"
    "CREATE TABLE IF NOT EXISTS router (record BLOB NOT NULL, restores INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS streams"
    " (number INTEGER PRIMARY KEY, first_row INTEGER NOT NULL, record BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS rows"
    " (row INTEGER PRIMARY KEY, unix_s INTEGER NOT NULL, events BLOB NOT NULL);"
    "COMMIT;";

absl::StatusOr<uint64_t> OneNumber(SqlStatement& statement) {
  const absl::StatusOr<bool> found = statement.Next();
  const uint64_t number = found.ok() && *found ? statement.Number(0) : 0;
  statement.Reset();
  SC_RETURN_IF_ERROR(found.status());
  return number;
}

}  // namespace

std::string JournalFile::PathIn(const std::string& folder) { return folder + "/journal.sqlite"; }

void JournalFile::Remove(const std::string& folder) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    std::error_code missing;
    std::filesystem::remove(PathIn(folder) + suffix, missing);
  }
}

absl::StatusOr<std::unique_ptr<JournalFile>> JournalFile::Open(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    return absl::PermissionDeniedError(fmt::format("{}: {}", folder, error.message()));
  }
  SC_ASSIGN_OR_RETURN(Sqlite connection, Sqlite::Open(PathIn(folder)));
  SC_RETURN_IF_ERROR(connection.Run(kSetUp));
  SC_ASSIGN_OR_RETURN(SqlStatement version,
                      SqlStatement::Prepare(connection, "PRAGMA user_version"));
  SC_ASSIGN_OR_RETURN(const uint64_t format, OneNumber(version));
  if (format == 0) {
    SC_RETURN_IF_ERROR(connection.Run(fmt::format("PRAGMA user_version = {}", kFormat).c_str()));
  } else if (format != kFormat) {
    return absl::DataLossError(
        fmt::format("{}: another version of the router wrote it", PathIn(folder)));
  }
  std::unique_ptr<JournalFile> file(new JournalFile(std::move(connection)));
  SC_RETURN_IF_ERROR(file->Prepare());
  return file;
}

absl::Status JournalFile::Prepare() {
  const std::pair<SqlStatement*, const char*> all[] = {
      {&begin_, "BEGIN IMMEDIATE"},
      {&commit_, "COMMIT"},
      {&add_stream_, "INSERT INTO streams VALUES (?1, ?2, ?3)"},
      {&add_events_, "INSERT INTO rows VALUES (?1, ?2, ?3)"},
      {&remove_stream_, "DELETE FROM streams WHERE number = ?1"},
      {&remove_rows_, "DELETE FROM rows WHERE row < ?1"},
      {&n_pages_, "PRAGMA page_count"},
      {&n_free_pages_, "PRAGMA freelist_count"}};
  for (const auto& [statement, sql] : all) {
    SC_ASSIGN_OR_RETURN(*statement, SqlStatement::Prepare(connection_, sql));
  }
  return absl::OkStatus();
}

absl::StatusOr<JournalContent> JournalFile::Read() {
  JournalContentBuilder builder;
  SC_ASSIGN_OR_RETURN(SqlStatement router,
                      SqlStatement::Prepare(connection_, "SELECT record, restores FROM router"));
  SC_ASSIGN_OR_RETURN(const bool has_router, router.Next());
  if (has_router) SC_RETURN_IF_ERROR(builder.SetRouter(router.Bytes(0), router.Number(1)));
  SC_ASSIGN_OR_RETURN(
      SqlStatement streams,
      SqlStatement::Prepare(connection_,
                            "SELECT number, first_row, record FROM streams ORDER BY number"));
  while (true) {
    SC_ASSIGN_OR_RETURN(const bool has_stream, streams.Next());
    if (!has_stream) break;
    SC_RETURN_IF_ERROR(builder.AddStream(streams.Number(0), streams.Number(1), streams.Bytes(2)));
  }
  SC_ASSIGN_OR_RETURN(
      SqlStatement rows,
      SqlStatement::Prepare(connection_, "SELECT row, unix_s, events FROM rows ORDER BY row"));
  while (true) {
    SC_ASSIGN_OR_RETURN(const bool has_row, rows.Next());
    if (!has_row) break;
    SC_RETURN_IF_ERROR(builder.AddRow(rows.Number(0), rows.Number(1), rows.Bytes(2)));
  }
  return builder.Take();
}

absl::Status JournalFile::SetRouter(const v1::RouterRecord& router) {
  SC_RETURN_IF_ERROR(connection_.Run("DELETE FROM router"));
  SC_ASSIGN_OR_RETURN(SqlStatement insert,
                      SqlStatement::Prepare(connection_, "INSERT INTO router VALUES (?1, 0)"));
  return insert.Bind(1, router.SerializeAsString()).Run();
}

absl::Status JournalFile::SetRestores(uint64_t n_restores) {
  return connection_.Run(fmt::format("UPDATE router SET restores = {}", n_restores).c_str());
}

absl::Status JournalFile::Begin() { return begin_.Run(); }
absl::Status JournalFile::Commit() { return commit_.Run(); }

absl::Status JournalFile::AddStream(uint64_t number, uint64_t first_row, std::string_view record) {
  return add_stream_.Bind(1, number).Bind(2, first_row).Bind(3, record).Run();
}

absl::Status JournalFile::AddEvents(uint64_t row, uint64_t unix_s, std::string_view events) {
  return add_events_.Bind(1, row).Bind(2, unix_s).Bind(3, events).Run();
}

absl::Status JournalFile::RemoveStream(uint64_t number) {
  return remove_stream_.Bind(1, number).Run();
}

absl::Status JournalFile::RemoveRowsBefore(uint64_t row) { return remove_rows_.Bind(1, row).Run(); }

absl::StatusOr<uint64_t> JournalFile::UsedBytes() {
  SC_ASSIGN_OR_RETURN(const uint64_t n_pages, OneNumber(n_pages_));
  SC_ASSIGN_OR_RETURN(const uint64_t n_free, OneNumber(n_free_pages_));
  return (n_pages - n_free) * kPageBytes;
}

absl::StatusOr<std::unique_ptr<JournalStore>> JournalFolder::Open() {
  return JournalFile::Open(folder_);
}

void JournalFolder::Discard(std::unique_ptr<JournalStore> store) {
  store.reset();  // before its file is removed
  JournalFile::Remove(folder_);
}

}  // namespace stagecoach::router
