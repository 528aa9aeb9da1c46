// Passes the tokenizer and chat template of a .gguf file to the Rust crate.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/text_abi.h"

namespace stagecoach::text {

// Whether `path` is a .gguf file instead of a folder.
bool IsGguf(std::string_view path);

// The caller frees the results. Errors name the file and the key that is missing or wrong.
absl::StatusOr<ScTextTokenizer*> LoadGgufTokenizer(const std::string& path);

// `override_path`: a template file, or "" to use the metadata's template. NotFound if there is
// none.
absl::StatusOr<ScTextTemplate*> LoadGgufTemplate(const std::string& path,
                                                 const std::string& override_path);

}  // namespace stagecoach::text
