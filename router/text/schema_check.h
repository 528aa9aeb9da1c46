// Rejects JSON Schemas that llguidance accepts although it cannot enforce them.
#pragma once

#include "absl/status/status.h"
#include "common/text/grammar.h"

namespace stagecoach::router {

// Checks a JSON Schema, or the schemas after `%json` in a Lark grammar, where a client could also
// set llguidance options. INVALID_ARGUMENT with the reason. Leaves unparsable text to the compiler.
// `may_be_lenient`: skips schemas with the option "lenient"; only for grammars that no client
// wrote.
absl::Status CheckSchemas(const text::GrammarSource& source, bool may_be_lenient);

}  // namespace stagecoach::router
