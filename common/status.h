// Early returns on absl::Status.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define SC_RETURN_IF_ERROR(expression)                                               \
  do {                                                                               \
    if (absl::Status sc_status_ = (expression); !sc_status_.ok()) return sc_status_; \
  } while (false)

#define SC_CONCAT_INNER_(a, b) a##b
#define SC_CONCAT_(a, b) SC_CONCAT_INNER_(a, b)

// SC_ASSIGN_OR_RETURN(auto x, F()): x takes F()'s value, or the enclosing function returns its
// status.
#define SC_ASSIGN_OR_RETURN(lhs, expression) \
  SC_ASSIGN_OR_RETURN_IMPL_(SC_CONCAT_(sc_statusor_, __LINE__), lhs, expression)
#define SC_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expression) \
  auto statusor = (expression);                              \
  if (!statusor.ok()) return std::move(statusor).status();   \
  lhs = std::move(statusor).value()
