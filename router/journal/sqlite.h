// SQLite with absl::Status: a connection and its prepared statements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace stagecoach::router {

// One thread at a time. Errors of all functions: FAILED_PRECONDITION: another process has locked
// the file. DATA_LOSS: it is damaged, or no SQLite file. PERMISSION_DENIED: it cannot be opened.
// UNAVAILABLE: everything else, for example a full disk.
class Sqlite {
 public:
  // Creates the file if there is none; only its owner can read it.
  static absl::StatusOr<Sqlite> Open(const std::string& path);

  absl::Status Run(const char* sql);

 private:
  friend class SqlStatement;
  struct Close {
    void operator()(sqlite3* connection) const;
  };

  std::unique_ptr<sqlite3, Close> connection_;
};

// A statement that runs any number of times. The connection outlives it.
class SqlStatement {
 public:
  static absl::StatusOr<SqlStatement> Prepare(const Sqlite& connection, const char* sql);

  // Values of the statement's parameters, counted from 1. Text must live until Reset.
  SqlStatement& Bind(int index, uint64_t value);
  SqlStatement& Bind(int index, std::string_view bytes);
  // Runs it to its end, for statements without rows; then resets it.
  absl::Status Run();
  // Takes the next row; false after the last one.
  absl::StatusOr<bool> Next();
  // Columns of the row, counted from 0. Bytes are valid until the next call of Next or Reset.
  uint64_t Number(int column) const;
  std::string_view Bytes(int column) const;
  void Reset();

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

}  // namespace stagecoach::router
