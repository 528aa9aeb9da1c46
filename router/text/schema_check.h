// JSON Schemas that llguidance would take although it cannot keep a text to them.
#pragma once

#include "absl/status/status.h"
#include "common/text/grammar.h"

namespace stagecoach::router {

// Of a JSON schema, or of those behind `%json` in a Lark grammar, where a client could also give
// the library options of its own. INVALID_ARGUMENT with the reason. What cannot be parsed is left
// to the compiler. `may_be_lenient`: schemas with the option "lenient" are not looked at, for
// grammars that no client wrote.
absl::Status CheckSchemas(const text::GrammarSource& source, bool may_be_lenient);

}  // namespace stagecoach::router
