#include "router/journal/sqlite.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/status.h"

namespace stagecoach::router {
namespace {

absl::Status StatusOf(sqlite3* connection, int code) {
  const char* path = sqlite3_db_filename(connection, nullptr);
  const std::string message =
      fmt::format("{}: {}", path == nullptr ? "" : path, sqlite3_errmsg(connection));
  switch (code & 0xff) {  // the upper bits give details
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return absl::OkStatus();
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return absl::PermissionDeniedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace

void Sqlite::Close::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }

absl::StatusOr<Sqlite> Sqlite::Open(const std::string& path) {
  // SQLite would create the file with the process's umask. Its other files follow this one's mode.
  const int created = open(path.c_str(), O_CREAT | O_CLOEXEC | O_RDWR, S_IRUSR | S_IWUSR);
  if (created < 0) {
    return absl::PermissionDeniedError(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  close(created);
  sqlite3* opened = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  Sqlite connection;
  connection.connection_.reset(opened);
  if (opened == nullptr) return absl::UnavailableError("no memory for SQLite");
  SC_RETURN_IF_ERROR(StatusOf(opened, code));
  return connection;
}

absl::Status Sqlite::Run(const char* sql) {
  return StatusOf(connection_.get(),
                  sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr));
}

void SqlStatement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

absl::StatusOr<SqlStatement> SqlStatement::Prepare(const Sqlite& connection, const char* sql) {
  sqlite3_stmt* prepared = nullptr;
  const int code = sqlite3_prepare_v3(connection.connection_.get(), sql, -1,
                                      SQLITE_PREPARE_PERSISTENT, &prepared, nullptr);
  SqlStatement statement;
  statement.statement_.reset(prepared);
  SC_RETURN_IF_ERROR(StatusOf(connection.connection_.get(), code));
  return statement;
}

SqlStatement& SqlStatement::Bind(int index, uint64_t value) {
  sqlite3_bind_int64(statement_.get(), index, static_cast<sqlite3_int64>(value));
  return *this;
}

SqlStatement& SqlStatement::Bind(int index, std::string_view bytes) {
  sqlite3_bind_blob64(statement_.get(), index, bytes.data(), bytes.size(), SQLITE_STATIC);
  return *this;
}

absl::Status SqlStatement::Run() {
  const absl::Status status = Next().status();
  Reset();
  return status;
}

absl::StatusOr<bool> SqlStatement::Next() {
  const int code = sqlite3_step(statement_.get());
  SC_RETURN_IF_ERROR(StatusOf(sqlite3_db_handle(statement_.get()), code));
  return code == SQLITE_ROW;
}

uint64_t SqlStatement::Number(int column) const {
  return static_cast<uint64_t>(sqlite3_column_int64(statement_.get(), column));
}

std::string_view SqlStatement::Bytes(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  return {static_cast<const char*>(bytes),
          static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

void SqlStatement::Reset() { sqlite3_reset(statement_.get()); }

}  // namespace stagecoach::router
